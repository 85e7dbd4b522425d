"""Float model → float model with the same answers that is easier to quantize."""
