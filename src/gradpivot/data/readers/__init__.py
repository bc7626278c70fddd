"""Known data sets as tensors: one file each."""
