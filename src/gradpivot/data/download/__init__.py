"""Catalogue, download from official sources and registry packages, verified cache."""
