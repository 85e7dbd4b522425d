"""Where a model runs."""
