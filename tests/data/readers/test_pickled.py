from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gradpivot.data.readers.pickled import read_batch
from gradpivot.errors import GradPivotError

PIXELS = np.arange(4 * 3072).astype(np.uint8).reshape(4, 3072)
LABELS = [3, 1, 4, 1]


def batch(protocol: int = 2, **changes: object) -> bytes:
    return pickle.dumps({b"data": PIXELS, b"labels": LABELS, b"filenames": [b"a.png"] * 4} | changes, protocol)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_reads_every_old_protocol(protocol):
    pixels, labels = read_batch(batch(protocol), "data_batch_1")
    np.testing.assert_array_equal(pixels, PIXELS)
    assert pixels.dtype == np.uint8
    assert labels == LABELS


def test_reads_what_python_2_wrote():
    """The opcodes of the authors' files: byte strings (SHORT_BINSTRING, BINSTRING), which Python 3 does not write."""

    def short(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    raw = PIXELS.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85" + short(b"b") + b"tR"
        b"(K\1K\4M\0\x0c\x86" + b"cnumpy\ndtype\n(" + short(b"u1") + b"K\0K\1tR"
        b"(K\3" + short(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
        b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    )
    content = b"\x80\2}(" + short(b"data") + array + short(b"labels") + b"](K\3K\1K\4K\1eu."
    pixels, labels = read_batch(content, "data_batch_1")
    np.testing.assert_array_equal(pixels, PIXELS)
    assert labels == LABELS


class Touches:
    """A pickle of this calls a function when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_code_is_refused_and_does_not_run(protocol, tmp_path):
    mark = tmp_path / "ran"
    hostile = batch(protocol, hidden=Touches(mark))
    pickle.loads(hostile)
    assert mark.exists(), "the pickle does nothing; this test would prove nothing"
    mark.unlink()
    with pytest.raises(GradPivotError, match=r"refused: the pickle refers to .*cifar-10-binary\.tar\.gz"):
        read_batch(hostile, "data_batch_1")
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"(S'true'\nios\nsystem\n.",
        b"\x80\2cbuiltins\neval\n(U\x011tR.",
        b"\x80\4\x8c\x08builtins\x8c\x04exec\x93.",
        b"cnumpy\nload\n.",
        b"cnumpy.core.multiarray\nscalar\n.",
    ],
)
def test_every_way_to_name_code_is_refused(content):
    with pytest.raises(GradPivotError, match="refused: the pickle refers to"):
        read_batch(content, "data_batch_1")


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\2]r\xff\xff\xff\x7f.",  # a memo of two thousand million places
        b"\x80\2\x82\1.",  # a class by number
        b"Pname\n.",  # a persistent id
        b"\x80\2K\1.",
        pickle.dumps({b"labels": [1]}),
        batch(labels="abc"),
        pickle.dumps({b"data": PIXELS.astype(np.int64), b"labels": LABELS}, 2),
        pickle.dumps({b"data": np.asfortranarray(PIXELS), b"labels": LABELS}, 2),
        pickle.dumps({b"data": PIXELS[0], b"labels": LABELS}, 2),
        pickle.dumps({b"data": "text", b"labels": LABELS}, 2),
    ],
)
def test_anything_else_is_refused(content):
    with pytest.raises(GradPivotError, match="data_batch_1"):
        read_batch(content, "data_batch_1")


def test_an_array_that_claims_to_be_huge_is_refused():
    content = batch().replace(b"K\4M\0\x0c\x86", b"J\xff\xff\xff\x7fM\0\x0c\x86")
    assert content != batch()
    with pytest.raises(GradPivotError, match="truncated"):
        read_batch(content, "data_batch_1")


def test_labels_must_be_as_many_as_images():
    with pytest.raises(GradPivotError, match="4 images but 3 labels"):
        read_batch(pickle.dumps({b"data": PIXELS, b"labels": LABELS[:3]}, 2), "data_batch_1")


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_gives_an_error_or_a_batch(place, change):
    content = bytearray(batch())
    content[place % len(content)] ^= change
    try:
        pixels, labels = read_batch(bytes(content), "data_batch_1")
    except GradPivotError:
        return
    assert len(pixels) == len(labels)


def test_a_key_whose_hash_takes_years_is_refused():
    """( ( … ) ( … ) ), sixty deep, each built of two copies of the last."""
    content = b"N" + b"2\x86" * 60 + b"N" + b"s."
    with pytest.raises(GradPivotError, match="manipulates its stack"):
        read_batch(b"}" + content, "batch")


@pytest.mark.parametrize("store", [b"q%c", b"\x94", b"q%cq%c", b"q%cN0"])
def test_nor_is_one_that_is_built_from_the_memo(store):
    """The last tuple is stored, and the next one made of it twice."""
    levels = [store.replace(b"%c", bytes([i])) + b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86" for i in range(60)]
    with pytest.raises(GradPivotError, match=r"reuses a tuple|manipulates its stack"):
        read_batch(b"}N\x85" + b"".join(levels) + b"Ns.", "batch")
