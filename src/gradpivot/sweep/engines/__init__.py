"""Where cells are run: local processes or a Ray cluster, one file each, found by being here."""
