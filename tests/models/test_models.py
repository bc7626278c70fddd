from __future__ import annotations

import torch

from gradpivot.models.cnn import SmallCNN
from gradpivot.models.mlp import MLP
from gradpivot.models.resnet import resnet18


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
    assert {
        "conv1.weight",
        "bn1.weight",
        "layer2.0.shortcut.0.weight",
        "layer4.1.conv2.weight",
        "linear.bias",
    } <= keys
