"""Data: what to forget (frozen and hashed), how batches are made, and one reader per data set."""
