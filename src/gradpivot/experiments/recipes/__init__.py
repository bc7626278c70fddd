"""Which settings are compared on a problem: recipe files and how they are read."""
