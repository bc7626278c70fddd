"""Figures, tables and interactive page of one comparison."""
