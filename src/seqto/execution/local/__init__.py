"""The executor of this machine: supervised worker processes."""
