"""Engines that run cells, one file each: local processes, Ray cluster."""
