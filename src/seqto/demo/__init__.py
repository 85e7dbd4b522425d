"""The embedded example: model, data and the command that runs it."""
