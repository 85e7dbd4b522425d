"""How a result is shown: everything here is made from the journal, and can be made again."""
