"""A run's record → files and text. Only api and cli import this room."""
