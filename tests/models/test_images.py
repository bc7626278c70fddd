from __future__ import annotations

import pytest

from gradpivot.errors import GradPivotError
from gradpivot.models.images import CIFAR10_MEAN, CIFAR10_STD, Images


def test_normalisations():
    images = Images()
    assert images.normalised("cifar10") == Images(mean=CIFAR10_MEAN, std=CIFAR10_STD)
    assert images.normalised("cifar10").normalised("none") == images
    assert images.normalised("0.1,0.2,0.3/1,2,3") == Images(mean=(0.1, 0.2, 0.3), std=(1, 2, 3))
    assert images.normalised("0.5/0.25") == Images(mean=(0.5,), std=(0.25,))


@pytest.mark.parametrize("how", ["imagnet", "0.5", "0.5/0.2/0.1", "a/b", ""])
def test_what_is_no_normalisation(how):
    with pytest.raises(GradPivotError, match="write none, cifar10, imagenet, or mean/std"):
        Images().normalised(how)


def test_numbers_that_cannot_be():
    with pytest.raises(GradPivotError, match="mean has 3 numbers, but images have 1 channels"):
        Images(channels=1).normalised("cifar10")
    for std in ("0.5/0", "0.5/-1", "0.5/nan"):
        with pytest.raises(GradPivotError, match="finite and > 0"):
            Images().normalised(std)


def test_stored_is_one_of_two():
    with pytest.raises(GradPivotError, match="stored is 'byte'; choose bytes or floats"):
        Images(stored="byte")


def test_who_needs_pixels():
    assert Images().need_pixels
    assert not Images(stored="floats").need_pixels
    assert Images(stored="floats").normalised("cifar10").need_pixels


@pytest.mark.parametrize("how", ["nan/1", "inf/1", "0.5/inf", "0.5/nan", "0.5/0"])
def test_a_normalisation_is_of_finite_numbers(how):
    with pytest.raises(GradPivotError, match="must be finite"):
        Images().normalised(how)
