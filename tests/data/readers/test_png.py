from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from gradpivot.data.readers.png import decode_rgb, encode_rgb, png_size
from gradpivot.errors import GradPivotError
from made_data import chunk, png

SIGNATURE = b"\x89PNG\r\n\x1a\n"


@given(st.data())
def test_every_filter_is_undone(data):
    height, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    pixels = data.draw(arrays(np.uint8, (height, width, 3)))
    filters = data.draw(arrays(int, height, elements=st.integers(0, 4)))
    np.testing.assert_array_equal(decode_rgb(png(pixels, filters), width, height), pixels)


@pytest.mark.parametrize("filter_of_all", range(5))
def test_agrees_with_an_imaging_library(filter_of_all):
    image = pytest.importorskip("PIL.Image")
    import io

    pixels = np.random.default_rng(filter_of_all).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    content = png(pixels, np.full(9, filter_of_all))
    np.testing.assert_array_equal(np.asarray(image.open(io.BytesIO(content))), pixels)
    np.testing.assert_array_equal(decode_rgb(content, 7, 9), pixels)


def test_reads_what_an_imaging_library_writes():
    image = pytest.importorskip("PIL.Image")
    import io

    ramp = np.add.outer(np.arange(64), np.arange(64))[..., None] + np.array([0, 40, 90])
    pixels = (ramp + np.random.default_rng(0).integers(0, 8, (64, 64, 3))).astype(np.uint8)
    file = io.BytesIO()
    image.fromarray(pixels).save(file, "png", optimize=True)
    np.testing.assert_array_equal(decode_rgb(file.getvalue(), 64, 64), pixels)


@settings(max_examples=50)
@given(st.data())
def test_a_changed_byte_is_noticed(data):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    content = bytearray(png(pixels, np.array([1, 2, 3, 4])))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(GradPivotError):
        decode_rgb(bytes(content), 5, 4)


def test_files_cut_short_are_refused():
    content = png(np.zeros((4, 5, 3), np.uint8))
    for length in range(len(content)):
        with pytest.raises(GradPivotError):
            decode_rgb(content[:length], 5, 4)


def with_data(raw: bytes, width: int = 2, height: int = 2, kind: int = 2) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return SIGNATURE + b"".join(
        map(chunk, [(b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")])
    )


def test_a_bomb_is_refused_before_it_is_unpacked():
    with pytest.raises(GradPivotError, match="more than 14 bytes"):
        decode_rgb(with_data(bytes(10_000_000)), 2, 2)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (with_data(bytes(13)), "fewer than 14 bytes"),
        (with_data(bytes([5]) + bytes(13)), "there is no filter 5"),
        (with_data(bytes(14), width=10**9), "not an 8-bit RGB image of 2×2"),
        (with_data(bytes(14), kind=6), "not an 8-bit RGB image of 2×2"),
        (b"GIF89a", "is no PNG"),
        (SIGNATURE + chunk((b"IEND", b"")), "cut short"),
    ],
)
def test_other_images_are_refused(content, says):
    with pytest.raises(GradPivotError, match=says):
        decode_rgb(content, 2, 2, "sheet.png")


@given(arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))))
def test_what_is_written_is_read_back(pixels):
    height, width, _ = pixels.shape
    np.testing.assert_array_equal(decode_rgb(encode_rgb(pixels), width, height), pixels)


def test_an_imaging_library_reads_what_is_written():
    image = pytest.importorskip("PIL.Image")
    import io

    pixels = np.random.default_rng(0).integers(0, 256, (7, 5, 3), dtype=np.uint8)
    np.testing.assert_array_equal(np.asarray(image.open(io.BytesIO(encode_rgb(pixels)))), pixels)


def test_the_header_tells_the_size():
    content = encode_rgb(np.zeros((4, 7, 3), np.uint8))
    assert png_size(content) == (7, 4)
    for broken in (b"", content[:20], b"GIF89a" + content[6:], content.replace(b"IHDR", b"XXXX")):
        with pytest.raises(GradPivotError, match="no PNG"):
            png_size(broken)
