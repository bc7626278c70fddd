"""The python form of CIFAR-10 is a pickle. It is read by an unpickler that can build plain values and byte arrays only.

A pickle is a program; the usual unpickler calls whatever the file names. Here the three names that an array needs lead
to stand-ins that keep bytes, and every other name is refused before anything is called.
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
        GradPivotError: if it is damaged, is something else, or names any code.
    """
    try:
        _check_program(data)
        content = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        fields = {_text(key): value for key, value in content.items()}
        array, labels = fields["data"], [int(label) for label in fields["labels"]]
        if not isinstance(array, _Array) or len(array.shape) != 2:
            raise TypeError("data is not a table of bytes")
        pixels = np.frombuffer(array.content, np.uint8).reshape(array.shape)
    except GradPivotError:
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise GradPivotError(
            f"{name} is no batch of CIFAR-10, or is damaged ({' '.join(str(error).split())}); get it again"
        ) from None
    if len(pixels) != len(labels):
        raise GradPivotError(f"{name} has {len(pixels)} images but {len(labels)} labels")
    return pixels, labels


def _check_program(data: bytes) -> None:
    """Refuse what data have no use for, before any of it is done.

    A pickle may ask for a memo of any size; ours has an index for each of some 10,000 names. And a tuple of twice the
    same tuple, again and again, is a few bytes and a key whose hash takes years.

    Raises:
        pickle.UnpicklingError: if it does.
    """
    made, tuples, kept = "", set(), 0
    for opcode, argument, _ in pickletools.genops(data):
        name = opcode.name
        if name in ("DUP", "POP", "POP_MARK"):
            raise pickle.UnpicklingError("it moves values about on its stack")
        if "PUT" in name or name == "MEMOIZE":
            index = kept if name == "MEMOIZE" else int(argument or 0)
            if index > _MEMO:
                raise pickle.UnpicklingError(f"memo index {index}")
            kept += 1
            if "TUPLE" in made:
                tuples.add(index)
        elif "GET" in name and int(argument or 0) in tuples:
            raise pickle.UnpicklingError("it uses a tuple twice")
        else:
            made = name


def _text(key: bytes | str) -> str:
    return key.decode("ascii") if isinstance(key, bytes) else key


class _Array:
    """Stands for numpy.ndarray: keeps the bytes of a plain uint8 array."""

    shape: tuple[int, ...] = ()
    content: bytes = b""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, content = state
        # Python 3 writes bytes as text in Latin-1 for old protocols.
        content = content.encode("latin1") if isinstance(content, str) else content
        if not isinstance(kind, _PickledKind) or kind.name not in ("u1", "|u1") or fortran:
            raise TypeError("the array is not one of bytes in rows")
        if not isinstance(content, bytes) or math.prod(shape) != len(content):
            raise ValueError("the array is cut short")
        self.shape, self.content = tuple(int(size) for size in shape), content


class _PickledKind:
    """Stands for numpy.dtype: keeps its name."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.name = _text(name)

    def __setstate__(self, state: Any) -> None:
        """What a dtype's state says, byte order and the like, says nothing of bytes."""


class _ArrayType:
    """Stands for the class that numpy's reconstruction is called with."""


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
            f"refused: the pickle names {module}.{name}, which data do not need; get the binary version "
            f"(cifar-10-binary.tar.gz), which holds no code"
        )
