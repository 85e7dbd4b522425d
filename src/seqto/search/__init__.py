"""Which plan to try next: the search space and its strategies."""
