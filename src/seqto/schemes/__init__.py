"""How one layer is kept: values, one file per kind."""
