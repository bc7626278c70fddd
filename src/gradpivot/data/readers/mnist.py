"""MNIST (LeCun et al., 1998) and Fashion-MNIST (Xiao et al., 2017): 60,000 + 10,000 images, 1×28×28, as idx files."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from gradpivot.data.download.archive import gunzipped
from gradpivot.data.readers.images import Arrays, load_images
from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.data import TensorDataset

__all__ = ["decode", "load_fashion_mnist", "load_mnist", "load_mnist16", "official_files", "read_idx"]

_IDX_FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
_MAX_BYTES = 64 * 2**20


def load_mnist() -> tuple[TensorDataset, TensorDataset]:
    """Train and test sets of (uint8 image 1×28×28, digit).

    Raises:
        GradPivotError: if it is damaged or not in the cache; get it with 'gradpivot data get mnist'.
    """
    return load_images("mnist", official_files)


def load_mnist16() -> tuple[TensorDataset, TensorDataset]:
    """MNIST at 16×16, for generators on a CPU: padded by two black pixels, then 2×2 average pooling.

    Raises:
        GradPivotError: as :func:`load_mnist`.
    """
    from torch.utils.data import TensorDataset

    from gradpivot.data.digest import cache_digest

    sets = []
    for images, labels in (one.tensors for one in load_mnist()):
        sets.append(TensorDataset(_halved(images), labels))
        cache_digest(sets[-1])
    return sets[0], sets[1]


def _halved(images: Tensor) -> Tensor:
    """Bytes n×1×28×28 to n×1×16×16."""
    import torch
    from torch.nn.functional import avg_pool2d, pad

    return avg_pool2d(pad(images, (2, 2, 2, 2)).float(), 2).round().to(torch.uint8)


def load_fashion_mnist() -> tuple[TensorDataset, TensorDataset]:
    """Train and test sets of (uint8 image 1×28×28, type of clothing).

    Raises:
        GradPivotError: if it is damaged or not in the cache; get it with 'gradpivot data get fashion-mnist'.
    """
    return load_images("fashion-mnist", official_files)


def decode(found: Mapping[str, bytes]) -> Arrays | None:
    """Images and labels from four idx files, plain or gzipped; None if one is missing."""
    arrays: Arrays = {}
    for part, name in _IDX_FILES.items():
        content = _content(found, name)
        if content is None:
            return None
        array = read_idx(content, name)
        arrays[part] = array[:, None] if part.endswith("images") else array.astype(np.int64)
    return arrays


def official_files(arrays: Arrays) -> Iterator[tuple[str, bytes]]:
    """The four idx files, byte for byte."""
    for part, name in _IDX_FILES.items():
        array = arrays[part].astype(np.uint8)
        array = array[:, 0] if array.ndim == 4 else array
        yield name, struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def read_idx(content: bytes, name: str) -> np.ndarray:
    """Read an idx file of bytes: two zeros, type 8, number of dimensions, shape, data.

    Raises:
        GradPivotError: if the file has another type or its length does not match its shape.
    """
    if len(content) < 4 or content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
        raise GradPivotError(f"{name} is not an idx file of bytes; download it again")
    rank = content[3]
    if not 1 <= rank <= 3:
        raise GradPivotError(f"{name} has {rank} dimensions instead of 1 (labels) or 3 (images); download it again")
    shape = struct.unpack_from(f">{rank}I", content, 4)
    expected = int(np.prod(shape, dtype=object))
    if len(content) != 4 + 4 * rank + expected:
        raise GradPivotError(
            f"{name} has {len(content) - 4 - 4 * rank:,} bytes of data instead of {expected:,}; download it again"
        )
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


def _content(found: Mapping[str, bytes], name: str) -> bytes | None:
    """One file under either spelling, decompressed."""
    for spelled in (name, name.replace("-idx", ".idx")):
        if spelled in found:
            return found[spelled]
        if f"{spelled}.gz" in found:
            return gunzipped(found[f"{spelled}.gz"], f"{spelled}.gz", _MAX_BYTES)
    return None
