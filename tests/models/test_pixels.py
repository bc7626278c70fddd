from __future__ import annotations

import pytest
import torch

from gradpivot.models.images import CIFAR10_MEAN, CIFAR10_STD
from gradpivot.models.pixels import Pixels
from gradpivot.models.resnet import resnet18

BYTES = torch.randint(0, 256, (4, 3, 6, 6), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bytes_become_normalised_numbers_of_the_models_type(dtype):
    layer = Pixels(CIFAR10_MEAN, CIFAR10_STD).to(dtype)
    found = layer(BYTES)
    mean, std = (torch.tensor(v, dtype=dtype).reshape(1, 3, 1, 1) for v in (CIFAR10_MEAN, CIFAR10_STD))
    torch.testing.assert_close(found, (BYTES.to(dtype) / 255 - mean) / std)
    assert found.dtype is dtype
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_whole_numbers_are_numbers():
    bytes_ = torch.full((1, 3, 2, 2), 51, dtype=torch.uint8)
    assert Pixels((0,), (2,))(bytes_).unique().item() == pytest.approx(0.1)


def test_floats_are_taken_as_they_are():
    real = BYTES.float() / 255
    assert torch.equal(Pixels()(real), real)
    assert torch.equal(Pixels()(BYTES), real)
    assert torch.equal(Pixels(CIFAR10_MEAN, CIFAR10_STD)(real), Pixels(CIFAR10_MEAN, CIFAR10_STD)(BYTES))


def test_the_stored_data_are_not_written_to():
    real = BYTES.float() / 255
    before = BYTES.clone(), real.clone()
    Pixels((0.5,), (0.2,))(BYTES)
    Pixels()(real).add(1)
    assert torch.equal(BYTES, before[0])
    assert torch.equal(real, before[1])


def test_it_adds_nothing_to_a_checkpoint_and_weights_lie_channels_last():
    model = resnet18(pixels=Pixels(CIFAR10_MEAN, CIFAR10_STD))
    assert set(model.state_dict()) == set(resnet18().state_dict())
    assert not any("pixels" in name for name in model.state_dict())
    assert model.conv1.weight.is_contiguous(memory_format=torch.channels_last)


def test_per_sample_gradients_go_through_it():
    """vmap cannot ask for a memory layout; IU would fall back to one sample at a time."""
    layer = Pixels(CIFAR10_MEAN, CIFAR10_STD)
    real = BYTES.float() / 255
    found = torch.func.vmap(lambda image: layer(image[None])[0])(real)
    torch.testing.assert_close(found, layer(real))
