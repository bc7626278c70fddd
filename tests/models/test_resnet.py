from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from gradpivot.models.cnn import SmallCNN
from gradpivot.models.mlp import MLP
from gradpivot.models.resnet import PaddedShortcut, ResNet, resnet18, resnet20, resnet56
from gradpivot.models.small import small_resnet


def count(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_shapes_and_sizes():
    assert SmallCNN()(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    assert SmallCNN(channels=3, size=32, classes=4)(torch.zeros(2, 3, 32, 32)).shape == (2, 4)
    assert MLP()(torch.zeros(2, 2)).shape == (2, 5)
    model = resnet18()
    assert count(model) == 11_173_962
    assert model.eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 10)


def test_resnet_has_the_key_names_of_the_published_checkpoints():
    keys = set(resnet18().state_dict())
    assert {"conv1.weight", "bn1.weight", "layer2.0.shortcut.0.weight", "layer4.1.conv2.weight", "linear.bias"} <= keys


def multiply_adds(model: nn.Module, images: torch.Tensor) -> int:
    """Of convolutions and linear layers, for one image."""
    total = 0

    def count(layer: nn.Module, _: object, output: torch.Tensor) -> None:
        nonlocal total
        total += output[0].numel() * layer.weight[0].numel()

    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(count)
    model.eval()(images)
    return total


@pytest.mark.parametrize(
    ("make", "weights", "millions"),
    [
        (resnet18, 11_173_962, 555.4),
        (resnet20, 269_722, 40.6),
        (resnet56, 853_018, 125.5),
        (small_resnet, 464_170, 19.8),
        (lambda: SmallCNN(channels=3, size=32), 25_578, 1.64),
    ],
)
def test_weights_and_multiply_adds_are_as_documented(make, weights, millions):
    """He et al. print 0.27 M and 0.85 M for ResNet-20 and 56; projected shortcuts would make the latter 0.86 M."""
    model = make()
    assert count(model) == weights
    assert multiply_adds(model, torch.zeros(1, 3, 32, 32)) == pytest.approx(millions * 1e6, rel=3e-3)


def test_depths_are_what_the_names_say():
    for make, depth in ((resnet18, 18), (resnet20, 20), (resnet56, 56)):
        layers = [
            name for name, m in make().named_modules()
            if isinstance(m, nn.Conv2d | nn.Linear) and "shortcut" not in name
        ]  # fmt: skip
        assert len(layers) == depth


def test_a_padded_shortcut_takes_every_second_pixel_and_adds_zero_channels():
    images = torch.arange(2 * 4 * 4.0).reshape(1, 2, 4, 4)
    shortcut = PaddedShortcut(2, 4, 2)(images)
    assert shortcut.shape == (1, 4, 2, 2)
    assert torch.equal(shortcut[:, 1:3], images[:, :, ::2, ::2])
    assert not shortcut[:, 0].any()
    assert not shortcut[:, 3].any()


def test_projected_shortcuts_can_be_had_in_the_small_networks_too():
    model = ResNet((3, 3, 3), width=16)
    assert "layer2.0.shortcut.0.weight" in model.state_dict()
    assert count(model) == 272_474


@pytest.mark.parametrize("make", [resnet20, small_resnet])
@pytest.mark.parametrize(("channels", "size"), [(1, 8), (1, 28), (3, 32)])
def test_other_images(make, channels, size):
    model = make(classes=7, channels=channels).eval()
    assert model(torch.zeros(2, channels, size, size, dtype=torch.uint8)).shape == (2, 7)


@pytest.mark.parametrize("make", [resnet20, small_resnet])
def test_images_do_not_see_each_other_and_weights_all_learn(make):
    torch.manual_seed(0)
    model, images = make().eval(), torch.rand(3, 3, 32, 32)
    assert torch.allclose(model(images)[:1], model(images[:1]), atol=1e-5)
    model.train()(images).logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


def test_the_page_of_models_has_these_numbers():
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    assert f"the model of `digits` | {count(SmallCNN(3, 32)):,} |" in page
    assert f"| {count(small_resnet()):,} |" in page
