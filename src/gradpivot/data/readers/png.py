"""Reading and writing one kind of PNG without an imaging library: 8 bits, RGB, not interlaced.

What is read is of a size known beforehand, or looked up in the header by who knows how large it may be.

W3C, "Portable Network Graphics (PNG) Specification", 3rd edition, sections 5 (chunks) and 9 (filters).
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from gradpivot.errors import GradPivotError

__all__ = ["decode_rgb", "encode_rgb", "png_size"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BYTES = 3  # of a pixel
_SUB, _UP, _AVERAGE, _PAETH = 1, 2, 3, 4


def decode_rgb(data: bytes, width: int, height: int, name: str = "the image") -> np.ndarray:
    """The pixels as uint8, height × width × 3.

    Nothing is unpacked beyond what an image of this size has, whatever the file says.

    Raises:
        GradPivotError: if the file is damaged, or an image of another size or kind.
    """
    packed = _image_data(data, width, height, name)
    expected = height * (1 + _BYTES * width)
    unpacking = zlib.decompressobj()
    try:
        raw = unpacking.decompress(packed, expected + 1)
    except zlib.error as error:
        raise _damaged(name, str(error)) from None
    if len(raw) != expected:
        raise _damaged(
            name, f"it unpacks to {'more' if len(raw) > expected else 'fewer'} than {expected:,} bytes"
        )
    rows = np.frombuffer(raw, np.uint8).reshape(height, 1 + _BYTES * width)
    return _unfiltered(rows[:, 0], rows[:, 1:].copy(), name).reshape(height, width, _BYTES)


def png_size(data: bytes, name: str = "the image") -> tuple[int, int]:
    """Width and height as the header says, for images of our own making; read them with :func:`decode_rgb`.

    Raises:
        GradPivotError: if it is no PNG.
    """
    if not data.startswith(_SIGNATURE) or data[12:16] != b"IHDR" or len(data) < 24:
        raise _damaged(name, "it is no PNG")
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def encode_rgb(pixels: np.ndarray) -> bytes:
    """A PNG file of uint8 pixels, height × width × 3; each row is told by its differences to the row above."""
    height, width, _ = pixels.shape
    above = np.vstack([np.zeros_like(pixels[:1]), pixels[:-1]])
    rows = np.empty((height, 1 + _BYTES * width), np.uint8)
    rows[:, 0] = _UP
    rows[:, 1:] = (pixels - above).reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")]
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def _image_data(data: bytes, width: int, height: int, name: str) -> bytes:
    """The joined IDAT chunks, every checksum checked."""
    if not data.startswith(_SIGNATURE):
        raise _damaged(name, "it is no PNG")
    place, parts, seen_header = len(_SIGNATURE), [], False
    while place + 12 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, place)
        body = data[place + 8 : place + 8 + size]
        checksum = data[place + 8 + size : place + 12 + size]
        if len(checksum) < 4 or struct.pack(">I", zlib.crc32(kind + body)) != checksum:
            raise _damaged(name, "a checksum is wrong")
        place += 12 + size
        if kind == b"IHDR":
            _check_header(body, width, height, name)
            seen_header = True
        elif kind == b"IDAT":
            parts.append(body)
        elif kind == b"IEND" and seen_header:
            return b"".join(parts)
    raise _damaged(name, "it is cut short")


def _check_header(body: bytes, width: int, height: int, name: str) -> None:
    if body != struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0):
        raise GradPivotError(
            f"{name} is not an 8-bit RGB image of {width}×{height} pixels without interlacing"
        )


def _unfiltered(filters: np.ndarray, rows: np.ndarray, name: str) -> np.ndarray:
    """Undo the filters; sums are modulo 256, which uint8 does by itself."""
    height = len(rows)
    if filters.max() > _PAETH:
        raise _damaged(name, f"there is no filter {filters.max()}")
    # A row filtered by its own left neighbours needs no other row: all of them at once.
    left = filters == _SUB
    pixels = rows[left].reshape(left.sum(), rows.shape[1] // _BYTES, _BYTES)
    rows[left] = np.cumsum(pixels, axis=1, dtype=np.uint8).reshape(left.sum(), rows.shape[1])
    for row in range(height):
        above = rows[row - 1] if row else np.zeros_like(rows[0])
        if filters[row] == _UP:
            rows[row] += above
        elif filters[row] == _AVERAGE:
            rows[row] = _averaged(rows[row].tolist(), above.tolist())
        elif filters[row] == _PAETH:
            rows[row] = _paeth(rows[row].tolist(), above.tolist())
    return rows


def _averaged(row: list[int], above: list[int]) -> list[int]:
    for i in range(len(row)):
        left = row[i - _BYTES] if i >= _BYTES else 0
        row[i] = (row[i] + (left + above[i]) // 2) & 255
    return row


def _paeth(row: list[int], above: list[int]) -> list[int]:
    """Each byte was predicted by whichever of left, above and above left is nearest to left + above − above left."""
    for i in range(len(row)):
        left, corner = (row[i - _BYTES], above[i - _BYTES]) if i >= _BYTES else (0, 0)
        to_left, to_above, to_corner = (
            abs(above[i] - corner), abs(left - corner), abs(left + above[i] - 2 * corner),
        )  # fmt: skip
        if to_left <= to_above and to_left <= to_corner:
            predicted = left
        else:
            predicted = above[i] if to_above <= to_corner else corner
        row[i] = (row[i] + predicted) & 255
    return row


def _damaged(name: str, why: str) -> GradPivotError:
    return GradPivotError(f"{name} is damaged ({why}); get it again")
