"""Float model → same answers, easier to quantize: equalize, smooth; a correction: denormals."""
