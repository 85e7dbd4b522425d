"""Why quantization changes answers: measured per layer, then explained."""
