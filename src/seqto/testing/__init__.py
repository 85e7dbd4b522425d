"""Fakes and contract suites for plug-in authors."""
