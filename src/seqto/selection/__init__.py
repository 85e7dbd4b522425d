"""Which trials matter: objectives, front, expected loss, recommendations. Pure functions."""
