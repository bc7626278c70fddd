from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from gradpivot.data.readers.png import decode_rgb, encode_rgb, png_size
from gradpivot.errors import GradPivotError
from made_data import chunk

SIGNATURE = b"\x89PNG\r\n\x1a\n"
END = 12
"""Bytes of the end mark; no pixel depends on them."""


def made() -> bytes:
    return encode_rgb(np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8))


@given(arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))))
def test_what_is_written_is_read_back(pixels):
    height, width, _ = pixels.shape
    np.testing.assert_array_equal(decode_rgb(encode_rgb(pixels), width, height), pixels)


@settings(max_examples=50)
@given(st.data())
def test_a_changed_byte_is_noticed(data):
    content = bytearray(made())
    content[data.draw(st.integers(0, len(content) - 1 - END))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(GradPivotError):
        decode_rgb(bytes(content), 5, 4)


def test_files_cut_short_are_refused_in_one_line():
    content = made()
    for length in range(len(content) - END):
        with pytest.raises(GradPivotError, match=r"^the image is damaged \(.+\); download it again$"):
            decode_rgb(content[:length], 5, 4)


def with_data(raw: bytes, width: int = 2, height: int = 2, kind: int = 2) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return SIGNATURE + b"".join(map(chunk, [(b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]))


@pytest.mark.parametrize("side", [9_500, 10**5])
def test_a_bomb_is_refused_before_it_is_unpacked(side):
    """Between one and two times Pillow's limit it would only warn."""
    assert side**2 > Image.MAX_IMAGE_PIXELS
    with pytest.raises(GradPivotError, match=r"exceeds limit of .* pixels"):
        png_size(with_data(b"", side, side), "sheet.png")


def test_what_follows_the_pixels_is_not_unpacked():
    assert decode_rgb(with_data(bytes(10_000_000)), 2, 2).shape == (2, 2, 3)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (with_data(bytes(13)), "damaged"),
        (with_data(bytes([5]) + bytes(13)), "damaged"),
        (with_data(bytes(14), width=3), "not an RGB image of 2×2"),
        (with_data(bytes(14), kind=6), "not an RGB image of 2×2"),
        (b"GIF89a", "not a PNG"),
        (SIGNATURE + chunk((b"IEND", b"")), "damaged"),
    ],
)
def test_other_images_are_refused(content, says):
    with pytest.raises(GradPivotError, match=rf"^sheet\.png is .*{says}"):
        decode_rgb(content, 2, 2, "sheet.png")


def test_the_header_tells_the_size():
    content = encode_rgb(np.zeros((4, 7, 3), np.uint8))
    assert png_size(content) == (7, 4)
    for broken in (b"", b"GIF89a" + content[6:]):
        with pytest.raises(GradPivotError, match="not a PNG"):
            png_size(broken)
    for broken in (content[:20], content.replace(b"IHDR", b"XXXX")):
        with pytest.raises(GradPivotError, match="damaged"):
            png_size(broken)
