"""Safe reader of CIFAR-10's python version: an unpickler that builds only plain values and byte arrays.

A pickle can call any function it names. Here the names that an array needs map to stand-ins that keep bytes, and every
other name is refused before anything is called.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from typing import Any

import numpy as np

from gradpivot.errors import GradPivotError

__all__ = ["read_batch"]

_MEMO = 1_000_000


def read_batch(data: bytes, name: str) -> tuple[np.ndarray, list[int]]:
    """Pixels (uint8, N × bytes of an image) and labels of one pickled batch.

    Raises:
        GradPivotError: if it is damaged, holds something else or refers to code.
    """
    try:
        _check_program(data)
        content = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        fields = {_text(key): value for key, value in content.items()}
        array, labels = fields["data"], [int(label) for label in fields["labels"]]
        if not isinstance(array, _Array) or len(array.shape) != 2:
            raise TypeError("data is not a two-dimensional array of bytes")
        pixels = np.frombuffer(array.content, np.uint8).reshape(array.shape)
    except GradPivotError:
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise GradPivotError(
            f"{name} is damaged or not a CIFAR-10 batch ({' '.join(str(error).split())}); download it again"
        ) from None
    if len(pixels) != len(labels):
        raise GradPivotError(f"{name} has {len(pixels)} images but {len(labels)} labels")
    return pixels, labels


def _check_program(data: bytes) -> None:
    """Reject pickles built to exhaust memory or time, before loading them.

    A pickle may request a memo of any size; a real batch needs some 10,000 entries. And tuples nested by reusing each
    one twice take a few bytes, but hashing them takes years.

    Raises:
        pickle.UnpicklingError: if the pickle does either.
    """
    made, tuples, kept = "", set(), 0
    for opcode, argument, _ in pickletools.genops(data):
        name = opcode.name
        if name in ("DUP", "POP", "POP_MARK"):
            raise pickle.UnpicklingError("it manipulates its stack")
        if "PUT" in name or name == "MEMOIZE":
            index = kept if name == "MEMOIZE" else int(argument or 0)
            if index > _MEMO:
                raise pickle.UnpicklingError(f"its memo index {index} is too large")
            kept += 1
            if "TUPLE" in made:
                tuples.add(index)
        elif "GET" in name and int(argument or 0) in tuples:
            raise pickle.UnpicklingError("it reuses a tuple")
        else:
            made = name


def _text(key: bytes | str) -> str:
    return key.decode("ascii") if isinstance(key, bytes) else key


class _Array:
    """Stand-in for numpy.ndarray that keeps the bytes of a uint8 array."""

    shape: tuple[int, ...] = ()
    content: bytes = b""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, content = state
        # Python 3 writes bytes as Latin-1 text in old protocols.
        content = content.encode("latin1") if isinstance(content, str) else content
        if not isinstance(kind, _PickledKind) or kind.name not in ("u1", "|u1") or fortran:
            raise TypeError("the array is not a C-ordered array of bytes")
        if not isinstance(content, bytes) or math.prod(shape) != len(content):
            raise ValueError("the array is truncated")
        self.shape, self.content = tuple(int(size) for size in shape), content


class _PickledKind:
    """Stand-in for numpy.dtype that keeps its name."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.name = _text(name)

    def __setstate__(self, state: Any) -> None:
        """Ignore the state: byte order and alignment do not matter for bytes."""


class _ArrayType:
    """Stand-in for the class passed to numpy's _reconstruct."""


def _reconstructed(*_: Any) -> _Array:
    return _Array()


def _encoded(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise ValueError(f"encoding {encoding!r}")
    return text.encode("latin1")


_STAND_INS = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstructed for core in ("core", "_core")},
    ("numpy", "ndarray"): _ArrayType,
    ("numpy", "dtype"): _PickledKind,
    ("_codecs", "encode"): _encoded,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _STAND_INS:
            return _STAND_INS[module, name]
        raise GradPivotError(
            f"refused: the pickle refers to {module}.{name}, which plain data never need; use the binary version "
            f"(cifar-10-binary.tar.gz), which contains no code"
        )
