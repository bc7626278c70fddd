from __future__ import annotations

import sys

import pytest
import torch

from gradpivot.errors import GradPivotError
from gradpivot.models.ddpm import paper_unet, small_unet


def count(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("channels", "size"), [(1, 16), (1, 28), (3, 8)])
def test_small_unet_predicts_one_number_a_pixel(channels, size):
    model = small_unet(channels, size, classes=4)
    images = torch.randn(2, channels, size, size)
    with torch.no_grad():
        found = model(images, torch.tensor([3, 900]), class_labels=torch.tensor([4, 0])).sample
    assert found.shape == images.shape


def test_small_unet_has_065_million_weights():
    assert count(small_unet()) == 652_449


def test_paper_unet_is_the_papers():
    model = paper_unet()
    assert count(model) == 35_751_939
    assert model.class_embedding.num_embeddings == 11
    with torch.no_grad():
        assert model(torch.randn(1, 3, 32, 32), 5, class_labels=torch.tensor([10])).sample.shape == (1, 3, 32, 32)
    attention = [type(block).__name__ for block in model.down_blocks]
    assert attention == ["DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"]


def test_without_diffusers_the_way_out_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers.models.unets.unet_2d", None)
    with pytest.raises(GradPivotError, match=r"-e '.\[diffusion\]'"):
        small_unet()


def test_torchvision_is_not_needed():
    assert "torchvision" not in sys.modules
