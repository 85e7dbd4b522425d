"""Schemes, which say how one layer is kept: values, one file per kind."""
