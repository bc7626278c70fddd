from __future__ import annotations

import numpy as np
import pytest

from gradpivot.data.download.getting import get
from gradpivot.data.readers.cifar10 import decode, load_cifar10, official_files
from gradpivot.errors import GradPivotError
from made_data import cifar_binary, cifar_pickles, cifar_sheets


@pytest.mark.parametrize("form", [cifar_binary, cifar_pickles, cifar_sheets])
def test_every_form_gives_the_same_images(form, cifar):
    found = decode(form(cifar))
    assert found is not None
    for name, array in cifar.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == (np.uint8 if name.endswith("images") else np.int64)


def test_official_files_are_the_binary_version(cifar):
    assert dict(official_files(cifar)) == cifar_binary(cifar)


def test_half_of_a_form_is_none(cifar):
    files = cifar_binary(cifar)
    del files["test_batch.bin"]
    assert decode(files) is None
    assert decode({}) is None


def test_damaged_forms_are_refused(cifar):
    with pytest.raises(GradPivotError, match=r"data_batch_2\.bin has 12,291 bytes, not a multiple of 3073"):
        decode(cifar_binary(cifar) | {"data_batch_2.bin": b"0" * 12_291})
    sheets = cifar_sheets(cifar)
    for change, says in (
        ({"test_lables.json": b"[1, 2]"}, "does not contain 6 integers"),
        ({"test_lables.json": b"[" * 100_000}, "damaged"),
        ({"test_lables.json": b'["a"]'}, "does not contain 6 integers"),
        ({"test_batch.png": sheets["data_batch_1.png"]}, "not an RGB image of 1024×6"),
    ):
        with pytest.raises(GradPivotError, match=says):
            decode(sheets | change)
    del sheets["train_lables.json"]
    with pytest.raises(GradPivotError, match=r"train_lables\.json is missing"):
        decode(sheets)
    wide = np.zeros((4, 3, 32, 33), np.uint8)
    odd = cifar_pickles(
        cifar | {"train_images": np.zeros((20, 3, 32, 33), np.uint8), "test_images": wide[:1].repeat(6, 0)}
    )
    with pytest.raises(GradPivotError, match="images of 3168 bytes, not 3072"):
        decode(odd)


def test_loads_tensors(cifar, tmp_path):
    import torch

    (tmp_path / "files").mkdir()
    for name, content in cifar_binary(cifar).items():
        (tmp_path / "files" / name).write_bytes(content)
    get("cifar10", given=tmp_path / "files")
    train, test = load_cifar10()
    assert torch.equal(train.tensors[0], torch.from_numpy(cifar["train_images"]))
    assert torch.equal(test.tensors[1], torch.from_numpy(cifar["test_labels"]))
    assert train.tensors[0].dtype == torch.uint8
    assert train.tensors[1].dtype == torch.int64


def test_says_how_to_get_it(cache):
    with pytest.raises(GradPivotError) as error:
        load_cifar10()
    assert str(error.value) == "cifar10 is not on this machine; run 'gradpivot data get cifar10'"
