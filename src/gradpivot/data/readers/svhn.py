"""SVHN, cropped digits (Netzer et al., 2011): 73,257 + 26,032 colour images of house-number digits, 3×32×32."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gradpivot.data.readers.images import Arrays, load_images
from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from torch.utils.data import TensorDataset

__all__ = ["decode", "load_svhn", "read_mat"]

_MAT_FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}


def load_svhn() -> tuple[TensorDataset, TensorDataset]:
    """Train and test sets of (uint8 image 3×32×32, digit).

    Raises:
        GradPivotError: if it is damaged or not in the cache; get it with 'gradpivot data get svhn'.
    """
    return load_images("svhn")


def decode(found: Mapping[str, bytes]) -> Arrays | None:
    """Images and digits from the two MATLAB files; None if one is missing."""
    if not all(name in found for name in _MAT_FILES.values()):
        return None
    arrays: Arrays = {}
    for part, name in _MAT_FILES.items():
        arrays[f"{part}_images"], arrays[f"{part}_labels"] = read_mat(found[name], name)
    return arrays


def read_mat(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images N×3×32×32 and digits of one file: X is 32×32×3×N, y is N×1, label 10 means digit 0.

    Raises:
        GradPivotError: if it is damaged or not an SVHN file.
    """
    from scipy.io import loadmat  # takes 0.2 s, so only when needed

    file: Any = io.BytesIO(content)
    try:
        held = loadmat(file, variable_names=["X", "y"])
        pixels, labels = held["X"], held["y"].reshape(-1)
    except Exception as error:  # scipy raises many kinds for a damaged file
        raise GradPivotError(f"{name} is damaged ({' '.join(str(error).split())}); download it again") from None
    if pixels.dtype != np.uint8 or pixels.shape[:3] != (32, 32, 3) or pixels.shape[3:] != labels.shape:
        raise GradPivotError(f"{name} is not an SVHN file: X has shape {pixels.shape}, y {labels.shape}")
    digits = labels.astype(np.int64)
    if digits.size and not 1 <= digits.min() <= digits.max() <= 10:
        raise GradPivotError(f"{name} is not an SVHN file: it has labels outside 1 to 10")
    return np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)), digits % 10
