"""Samples → three splits, prepared once and memory-mapped."""
