"""Readers of known datasets, one per file."""
