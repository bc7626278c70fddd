"""One comparison: its figures, tables and interactive page."""
