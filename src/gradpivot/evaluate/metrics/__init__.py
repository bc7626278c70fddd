"""Metrics, one file per family, discovered by name. Third parties use the entry-point group ``gradpivot.metrics``."""
