"""Experiments as data: problems with their models and training, and which settings are compared on them."""
