from __future__ import annotations

import io

import numpy as np
import pytest
import scipy.io
import torch

from gradpivot.data.download.getting import get
from gradpivot.data.readers.svhn import decode, load_svhn, read_mat
from gradpivot.errors import GradPivotError
from made_data import mat_files, put


def mat(**variables: np.ndarray) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, variables)
    return file.getvalue()


def test_images_are_transposed_and_ten_means_zero(svhn):
    assert 0 in svhn["train_labels"]
    found = decode(mat_files(svhn))
    assert found is not None
    for name, array in svhn.items():
        np.testing.assert_array_equal(found[name], array)
    # By hand, for one pixel: X is row, column, channel, image.
    pixels = np.zeros((32, 32, 3, 2), np.uint8)
    pixels[5, 7, 2, 1] = 9
    images, digits = read_mat(mat(X=pixels, y=np.array([[10], [3]], np.uint8)), "x.mat")
    assert images[1, 2, 5, 7] == 9
    assert images.sum() == 9
    assert digits.tolist() == [0, 3]


def test_loads_tensors(svhn, tmp_path):
    with pytest.raises(GradPivotError, match="run 'gradpivot data get svhn'"):
        load_svhn()
    get("svhn", given=put(tmp_path / "files", mat_files(svhn)))
    train, test = load_svhn()
    assert torch.equal(train.tensors[0], torch.from_numpy(svhn["train_images"]))
    assert torch.equal(test.tensors[1], torch.from_numpy(svhn["test_labels"]))


def test_one_of_two_files_is_none(svhn):
    assert decode({"train_32x32.mat": mat_files(svhn)["train_32x32.mat"]}) is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"no matlab", "damaged"),
        (b"", "damaged"),
        (mat(X=np.zeros((32, 32, 3, 2), np.uint8), y=np.ones((2, 1)))[:500], "damaged"),
        (mat(X=np.zeros((32, 32, 3, 2), np.uint8)), "damaged"),
        (mat(X=np.zeros((32, 32, 3, 2)), y=np.ones((2, 1))), "not an SVHN file: X"),
        (mat(X=np.zeros((32, 32, 3, 2), np.uint8), y=np.ones((3, 1))), "not an SVHN file: X"),
        (mat(X=np.zeros((32, 32, 3, 2), np.uint8), y=np.array([[0], [1]])), "outside 1 to 10"),
        (mat(X=np.zeros((32, 32, 3, 2), np.uint8), y=np.array([[11], [1]])), "outside 1 to 10"),
    ],
)
def test_other_files_are_refused(content, says):
    with pytest.raises(GradPivotError, match=says):
        read_mat(content, "train_32x32.mat")


def test_a_file_of_another_digest_never_reaches_the_matlab_reader(svhn, tmp_path, monkeypatch):
    monkeypatch.setattr("scipy.io.loadmat", lambda *_, **__: pytest.fail("opened before it was checked"))
    other = mat_files(svhn) | {"test_32x32.mat": b"MATLAB 5.0"}
    with pytest.raises(GradPivotError, match=r"test_32x32\.mat of svhn is not the official file: its md5"):
        get("svhn", given=put(tmp_path / "files", other))
