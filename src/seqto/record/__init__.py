"""What happened in a run: trials, the journal file, the environment."""
