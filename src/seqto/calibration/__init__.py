"""Float model and calibration samples → ranges, means, peaks, Gram matrices."""
