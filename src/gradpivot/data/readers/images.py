"""Cached image datasets: four arrays in one safetensors file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradpivot.data.download.cache import cached_file, identity_of
from gradpivot.data.download.catalogue import Entry, ImageFiles, entry
from gradpivot.errors import GradPivotError
from gradpivot.runtime import replacing

if TYPE_CHECKING:
    from torch.utils.data import TensorDataset

__all__ = ["Arrays", "check_digest", "check_form", "load_images", "read_arrays", "write_arrays"]

Arrays = dict[str, np.ndarray]
"""train_images, train_labels, test_images, test_labels; images N×C×H×W in uint8, labels in int64."""
Official = Callable[[Arrays], Iterator[tuple[str, bytes]]]
"""Writes the arrays as the official files."""
_verified: set[tuple[Any, ...]] = set()
"""Files whose content is the official one, by path, size and times."""


def load_images(name: str, official: Official | None = None) -> tuple[TensorDataset, TensorDataset]:
    """Train and test sets of (uint8 image C×H×W, int64 label) from the cache.

    Args:
        name: Entry of the catalogue.
        official: Writes the official files, to compare them with the catalogue once per process; who changes a cached
            file can change its manifest, too. None if they cannot be written.

    Raises:
        GradPivotError: if it is damaged, not the official content, or not in the cache.
    """
    import torch
    from torch.utils.data import TensorDataset

    from gradpivot.data.digest import cache_digest

    path = cached_file(name)
    identity, arrays = identity_of(path), read_arrays(entry(name), path)
    if official is not None and identity not in _verified:
        check_digest(entry(name), official(arrays))
        _verified.add(identity)
    sets = tuple(
        TensorDataset(*(torch.from_numpy(arrays[f"{part}_{what}"]) for what in ("images", "labels")))
        for part in ("train", "test")
    )
    for one in sets:
        cache_digest(one)
    return sets[0], sets[1]


def read_arrays(known: Entry, path: Path) -> Arrays:
    """Read the four arrays of a cached file and check them against the catalogue."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError):
        raise GradPivotError(
            f"the cached {known.name} is damaged; run 'gradpivot data get {known.name}' to download it again"
        ) from None
    check_form(known, arrays)
    return arrays


def write_arrays(known: Entry, arrays: Arrays, path: Path) -> None:
    """Write the four arrays atomically."""
    from safetensors.numpy import save

    check_form(known, arrays)
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with replacing(path) as temporary:
        # Not save_file: it writes to a temporary file of its own, which a kill leaves for good.
        temporary.write_bytes(save(contiguous, metadata={"gradpivot": known.name}))


def check_form(known: Entry, arrays: Mapping[str, np.ndarray]) -> None:
    """Check names, shapes, dtypes and labels against the catalogue entry."""
    assert known.images is not None
    expected = _form(known.images)
    found = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
    for name, (shape, kind) in expected.items():
        if found.get(name) != (shape, kind):
            raise GradPivotError(f"{name} of {known.name} is {found.get(name)}, not {(shape, kind)}; download it again")
    for name in ("train_labels", "test_labels"):
        if arrays[name].size and not 0 <= arrays[name].min() <= arrays[name].max() <= 9:
            raise GradPivotError(f"{known.name} has labels outside 0 to 9 in {name}; download it again")


def check_digest(known: Entry, files: Iterable[tuple[str, bytes]]) -> None:
    """Check that every official file is present and matches the digest in the catalogue."""
    missing = dict(known.digests)
    for name, content in files:
        algorithm, _, expected = missing.pop(name).partition(":")
        if hashlib.new(algorithm, content, usedforsecurity=False).hexdigest() != expected:
            raise GradPivotError(
                f"{name} of {known.name} is not the official file: its {algorithm} differs; get it with "
                f"'gradpivot data get {known.name}'"
            )
    if missing:
        raise GradPivotError(f"{known.name} is incomplete: {', '.join(missing)} missing")


def _form(images: ImageFiles) -> dict[str, tuple[tuple[int, ...], str]]:
    form: dict[str, tuple[tuple[int, ...], str]] = {}
    for part, count in (("train", images.train), ("test", images.test)):
        form[f"{part}_images"] = ((count, *images.shape), "uint8")
        form[f"{part}_labels"] = ((count,), "int64")
    return form
