"""The executor of a Ray cluster: workers are actors, files travel by content."""
