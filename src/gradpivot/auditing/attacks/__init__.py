"""Attacks, one file per family, discovered by the registry."""
