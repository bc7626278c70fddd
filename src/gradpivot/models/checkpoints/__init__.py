"""Weights on disk: gradpivot's own files, third-party checkpoints, renaming of keys."""
