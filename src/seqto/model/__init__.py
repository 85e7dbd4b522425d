"""A model file → a prepared float model with its layers."""
