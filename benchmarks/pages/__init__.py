"""The tables of the results pages, each a function of the JSON files in benchmarks/results."""
