"""The built-in problems: one file each."""
