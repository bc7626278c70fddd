"""In-memory PNG files of 8-bit RGB pixels, read by Pillow with its errors in one line."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import Image, UnidentifiedImageError

from gradpivot.errors import GradPivotError

__all__ = ["decode_rgb", "encode_rgb", "png_size"]


def decode_rgb(data: bytes, width: int, height: int, name: str = "the image") -> np.ndarray:
    """Decode to uint8 pixels, height × width × 3.

    Checks the size in the header first, so that a malicious file cannot decompress to more.

    Raises:
        GradPivotError: if the file is damaged or has another size or mode.
    """
    with _opened(data, name) as image:
        if (*image.size, image.mode) != (width, height, "RGB"):
            raise GradPivotError(f"{name} is not an RGB image of {width}×{height} pixels")
        image.verify()  # checksums, which reading the pixels ignores
    with _opened(data, name) as image:
        return np.array(image)


def png_size(data: bytes, name: str = "the image") -> tuple[int, int]:
    """Width and height from the header.

    Raises:
        GradPivotError: if it is not a PNG.
    """
    with _opened(data, name) as image:
        return image.size


def encode_rgb(pixels: np.ndarray) -> bytes:
    """Encode uint8 pixels, height × width × 3, as PNG."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return file.getvalue()


@contextmanager
def _opened(data: bytes, name: str) -> Iterator[Image.Image]:
    """Open the image; any error in the block means that the file is damaged."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
                yield image
    except GradPivotError:
        raise
    except UnidentifiedImageError:
        raise GradPivotError(f"{name} is damaged (not a PNG); download it again") from None
    except Exception as error:  # a damaged file can make Pillow raise nearly anything
        raise GradPivotError(f"{name} is damaged ({' '.join(str(error).split())}); download it again") from None
