"""Jobs in, results out: in worker processes on this machine or on others."""
