"""Tasks: they decode outputs to answers and measure how far two answers are apart."""
