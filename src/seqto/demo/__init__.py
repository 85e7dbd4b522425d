"""The embedded example: a model and pictures; CARD.md says where they come from."""
