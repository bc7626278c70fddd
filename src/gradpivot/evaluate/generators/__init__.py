"""Samples judged by a classifier and by their distance from real images."""
