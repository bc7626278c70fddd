"""Pieces that some methods are made of: Fisher information, the last layer."""
