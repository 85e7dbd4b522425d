"""Publishing: a model with its card, uploads to a hub, records in a tracker."""
