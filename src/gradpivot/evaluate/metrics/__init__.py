"""Metrics: a file each or a family, found by being here. Third parties use the entry points ``gradpivot.metrics``."""
