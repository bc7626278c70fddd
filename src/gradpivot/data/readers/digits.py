"""The default dataset: 1,797 handwritten digits (8×8) that ship with scikit-learn.

Source: Alpaydin & Kaynak (1998), "Optical Recognition of Handwritten Digits", UCI, CC BY 4.0 (the test part).
"""

from __future__ import annotations

import torch
from torch.utils.data import TensorDataset

__all__ = ["load_digits"]


def load_digits(test_fraction: float = 0.2) -> tuple[TensorDataset, TensorDataset]:
    """Train and test sets of (1×8×8 image in [0, 1], digit): a fixed split, stratified by digit."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    pixels, labels = datasets.load_digits(return_X_y=True)
    images = torch.tensor(pixels / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    digits = torch.tensor(labels, dtype=torch.int64)
    train, test = train_test_split(range(len(digits)), test_size=test_fraction, stratify=labels, random_state=0)
    return TensorDataset(images[train], digits[train]), TensorDataset(images[test], digits[test])
