"""Plan → model, from parts that are made once per layer and scheme."""
