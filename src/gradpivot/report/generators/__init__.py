"""Generators: what samples show, with γ as a slider."""
