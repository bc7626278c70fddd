"""What the makers of a split are given: data sets, classes and indices in any form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

from gradpivot.errors import GradPivotError

__all__ = ["as_dataset", "integers", "training_indices", "training_set"]


def as_dataset(data: Any) -> Any:
    """Check a map-style dataset, or make one of a pair of arrays (inputs, labels).

    Raises:
        GradPivotError: If it is neither.
    """
    if isinstance(data, tuple) and len(data) == 2 and all(hasattr(part, "shape") for part in data):
        inputs, labels = (torch.as_tensor(part) for part in data)
        if len(inputs) != len(labels):
            raise GradPivotError(f"there are {len(inputs)} inputs but {len(labels)} labels")
        return TensorDataset(inputs, labels)
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise GradPivotError(
            f"{type(data).__name__} is not a map-style dataset (len(data) and data[i]); convert an iterable with "
            f"list(data)"
        )
    return data


def training_set(data: Any) -> Any:
    """:func:`as_dataset` with at least one sample.

    Raises:
        GradPivotError: If it is no data set, or an empty one.
    """
    train = as_dataset(data)
    if len(train) == 0:
        raise GradPivotError("the training set is empty; pass the data that the model was trained on")
    return train


def training_indices(given: Any, count: int) -> np.ndarray:
    """Indices into ``count`` training samples, in the given order; a boolean mask selects where it is true.

    Raises:
        GradPivotError: If one is no integer or outside, or a mask has another length.
    """
    found = integers("index", given)
    if found.dtype == bool:
        if len(found) != count:
            raise GradPivotError(f"the mask of indices has {len(found)} entries for {count} training samples")
        found = np.flatnonzero(found)
    outside = [index for index in found.tolist() if not 0 <= index < count]
    if outside:
        raise GradPivotError(f"index {outside[0]} is outside the training set; it must be between 0 and {count - 1}")
    return found.astype(np.int64)


def integers(what: str, given: Any) -> np.ndarray:
    """One-dimensional array of a number, sequence, array or tensor of integers; of booleans for a mask of indices.

    Raises:
        GradPivotError: If something else is in it.
    """
    listed = given.tolist() if hasattr(given, "tolist") else list(given) if _is_iterable(given) else [given]
    try:
        array = np.asarray(listed).reshape(-1)
    except ValueError:
        raise GradPivotError(f"what to forget by {what} is {given!r}; pass integers, or a list of them") from None
    # Integers beyond 64 bits are objects; they are in no data set.
    integral = array.dtype.kind == "O" and all(type(number) is int for number in array)
    if array.size and not integral and array.dtype.kind not in ("iub" if what == "index" else "iu"):
        article = "an" if what == "index" else "a"
        raise GradPivotError(f"{article} {what} to forget is {array.tolist()[0]!r}; it must be an integer")
    return array


def _is_iterable(given: Any) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, str | bytes)
