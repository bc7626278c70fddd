"""PNG files of 8-bit RGB pixels, in memory, by Pillow; what Pillow says of damaged ones becomes one line."""

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
    """The pixels as uint8, height × width × 3.

    Nothing is unpacked beyond what an image of this size has, whatever the file says.

    Raises:
        GradPivotError: if the file is damaged, or an image of another size or kind.
    """
    with _opened(data, name) as image:
        if (*image.size, image.mode) != (width, height, "RGB"):
            raise GradPivotError(f"{name} is not an RGB image of {width}×{height} pixels")
        image.verify()  # the checksums, which reading the pixels does not look at
    with _opened(data, name) as image:
        return np.array(image)


def png_size(data: bytes, name: str = "the image") -> tuple[int, int]:
    """Width and height, from the header alone.

    Raises:
        GradPivotError: if it is no PNG.
    """
    with _opened(data, name) as image:
        return image.size


def encode_rgb(pixels: np.ndarray) -> bytes:
    """A PNG file of uint8 pixels, height × width × 3."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return file.getvalue()


@contextmanager
def _opened(data: bytes, name: str) -> Iterator[Image.Image]:
    """The image, its header read; what goes wrong in the block is the file's fault."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
                yield image
    except GradPivotError:
        raise
    except UnidentifiedImageError:
        raise GradPivotError(f"{name} is damaged (it is no PNG); get it again") from None
    except Exception as error:  # a damaged file can make Pillow raise nearly anything
        raise GradPivotError(f"{name} is damaged ({' '.join(str(error).split())}); get it again") from None
