"""Methods ranked over seeds and problems."""
