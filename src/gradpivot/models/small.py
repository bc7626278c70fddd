"""A residual network for quick work on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradpivot.models.pixels import Pixels
from gradpivot.models.resnet import BasicBlock

__all__ = ["SmallResNet", "small_resnet"]


class SmallResNet(nn.Module):
    """Three 3×3 convolutions (32, 64, 128 channels), each pooled by two, a basic block after the last two.

    After the ResNet-9 of the DAWNBench entries (Page, 2018, "How to train your ResNet"), an eighth as wide where pixels
    are many: half of a ResNet-20's multiplications, in layers wide enough to keep a CPU busy. 19.8 million
    multiply-adds and 464,170 weights for 32×32 colour images and ten classes.

    Args:
        classes: Number of outputs.
        pixels: Converts stored images to inputs; by default scales to [0, 1] only.
        channels: Image channels.
    """

    def __init__(self, classes: int = 10, pixels: Pixels | None = None, *, channels: int = 3) -> None:
        super().__init__()
        self.pixels = pixels or Pixels()
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(64)
        self.block2 = BasicBlock(64, 64, 1)
        self.conv3 = nn.Conv2d(64, 128, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(128)
        self.block3 = BasicBlock(128, 128, 1)
        self.linear = nn.Linear(128, classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, size, size), size at least 8, to logits (n, classes)."""
        hidden = torch.max_pool2d(torch.relu(self.bn1(self.conv1(self.pixels(images)))), 2)
        hidden = self.block2(torch.max_pool2d(torch.relu(self.bn2(self.conv2(hidden))), 2))
        hidden = self.block3(torch.max_pool2d(torch.relu(self.bn3(self.conv3(hidden))), 2))
        logits: Tensor = self.linear(hidden.amax((2, 3)))
        return logits


def small_resnet(classes: int = 10, pixels: Pixels | None = None, *, channels: int = 3) -> SmallResNet:
    """:class:`SmallResNet` with the signature of the other factories."""
    return SmallResNet(classes, pixels, channels=channels)
