"""Recipe files and their loader: which settings are compared on a problem."""
