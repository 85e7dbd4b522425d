"""Makes tests/ importable for the folders below it (`from nets import …`)."""
