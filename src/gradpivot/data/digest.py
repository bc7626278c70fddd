"""A content digest of any map-style dataset: the same data, the same digest, on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.utils.data import TensorDataset

from gradpivot.data.loader import Collated
from gradpivot.errors import GradPivotError
from gradpivot.runtime import derive, isolated, reseed

__all__ = ["dataset_digest", "remember_digest"]


class _Known(NamedTuple):
    """A digest, of which tensors, and how often torch had written to each when it was made."""

    tensors: tuple[torch.Tensor, ...]
    changes: tuple[int, ...]
    digest: str

    def holds_for(self, dataset: TensorDataset) -> bool:
        same = len(dataset.tensors) == len(self.tensors) and all(map(is_, dataset.tensors, self.tensors))
        return same and tuple(tensor._version for tensor in dataset.tensors) == self.changes


_remembered: WeakKeyDictionary[TensorDataset, _Known | None] = WeakKeyDictionary()


def remember_digest(dataset: TensorDataset) -> None:
    """Compute the dataset's digest once, not for every split of it (0.4 s for CIFAR-10).

    For datasets that we made and whose memory nobody else holds: what is written to a NumPy array behind a tensor
    cannot be noticed. What torch writes is, and makes the digest anew.
    """
    _remembered[dataset] = None


def dataset_digest(dataset: Any) -> str:
    """SHA-256 over every sample: types, shapes and bytes, in order.

    One pass over the data. Datasets that draw random augmentations are read under fixed seeds, so that their digest
    is stable too.
    """
    if isinstance(dataset, Collated):
        return dataset_digest(dataset.dataset)
    # The exact class: a subclass may change what its samples are.
    if type(dataset) is TensorDataset:
        return _of_tensors(dataset)
    digest = hashlib.sha256()
    with isolated():
        for index in range(len(dataset)):
            reseed(derive(0, "digest", index))
            _update(digest, dataset[index])
    return digest.hexdigest()


def _of_tensors(dataset: TensorDataset) -> str:
    remembering = dataset in _remembered
    if remembering and (known := _remembered[dataset]) is not None and known.holds_for(dataset):
        return known.digest
    digest = hashlib.sha256()
    for tensor in dataset.tensors:
        _update(digest, tensor)
    if remembering:
        changes = tuple(tensor._version for tensor in dataset.tensors)
        _remembered[dataset] = _Known(dataset.tensors, changes, digest.hexdigest())
    return digest.hexdigest()


def _update(digest: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        # bfloat16 has no NumPy type; its bytes do.
        value = value.contiguous().view(torch.uint8).numpy() if value.dtype is torch.bfloat16 else value.numpy()
    if isinstance(value, np.ndarray | np.generic):
        array = np.ascontiguousarray(value)
        if array.dtype.hasobject:
            raise GradPivotError(
                "a sample holds an array of Python objects, whose content cannot be hashed; "
                'name the data yourself with data_id="my-data-v1"'
            )
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            digest.update(f"{key}:".encode())
            _update(digest, value[key])
    elif isinstance(value, str | bytes | int | float | bool | None):
        digest.update(f"{type(value).__name__}:{value!r};".encode())
    elif isinstance(value, Sequence):
        digest.update(f"[{len(value)}]".encode())
        for part in value:
            _update(digest, part)
    elif hasattr(value, "__array__"):  # PIL images and the like
        _update(digest, np.asarray(value))
    else:
        raise GradPivotError(
            f"a sample holds a {type(value).__name__}, whose content cannot be hashed; "
            f'name the data yourself with data_id="my-data-v1"'
        )
