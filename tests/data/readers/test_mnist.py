from __future__ import annotations

import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays

from gradpivot.data.download.getting import get
from gradpivot.data.readers.mnist import decode, load_fashion_mnist, load_mnist, official_files, read_idx
from gradpivot.errors import GradPivotError
from made_data import gzipped, idx, idx_files, put


@given(arrays(np.uint8, array_shapes(min_dims=1, max_dims=3)))
def test_idx_round_trip(array):
    np.testing.assert_array_equal(read_idx(idx(array), "x"), array)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\x08",
        b"\0\0\x08\3\0\0\0\1",
        b"\0\0\x08\0",
        b"\0\0\x08\x80" + b"\0\0\0\1" * 128 + b"\0",
        b"\0\0\x0d\1\0\0\0\1\0\0\0\0",
        idx(np.zeros((2, 3), np.uint8))[:-1],
        idx(np.zeros((2, 3), np.uint8)) + b"\0",
        struct.pack(">I3I", 0x803, 2**32 - 1, 2**32 - 1, 2**32 - 1),
    ],
)
def test_damaged_idx_files_are_refused(content):
    with pytest.raises(GradPivotError, match=r"labels.* download it again"):
        read_idx(content, "labels")


@pytest.mark.parametrize("pack", [dict, gzipped])
@pytest.mark.parametrize("dotted", [False, True])
def test_decodes_plain_and_packed_in_either_spelling(pack, dotted, clothes):
    files = {n.replace("-idx", ".idx") if dotted else n: c for n, c in idx_files(clothes).items()}
    found = decode(pack(files))
    assert found is not None
    for name, array in clothes.items():
        np.testing.assert_array_equal(found[name], array)
    assert dict(official_files(found)) == idx_files(clothes)


def test_a_missing_file_is_none(clothes):
    files = idx_files(clothes)
    del files["t10k-labels-idx1-ubyte"]
    assert decode(files) is None


@pytest.mark.parametrize(("name", "load"), [("mnist", load_mnist), ("fashion-mnist", load_fashion_mnist)])
def test_loads_tensors(name, load, clothes, tmp_path):
    with pytest.raises(GradPivotError, match=f"run 'gradpivot data get {name}'"):
        load()
    get(name, given=put(tmp_path / "files", gzipped(idx_files(clothes))))
    train, test = load()
    assert train.tensors[0].shape == (20, 1, 28, 28)
    assert torch.equal(test.tensors[0], torch.from_numpy(clothes["test_images"]))
    assert train.tensors[1].dtype == torch.int64
