"""The loop that joins model, data, search and execution, and the run folder."""
