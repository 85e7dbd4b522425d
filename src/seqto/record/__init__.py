"""Record of a run: trials, the journal file, the environment."""
