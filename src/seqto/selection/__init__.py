"""Selection of the trials that matter: objectives, front, expected loss, picks. Pure functions."""
