"""Weights on disk: our own files, other people's checkpoints, renaming of keys."""
