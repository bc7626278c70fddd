"""A small convolutional network for 8×8 to 32×32 images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["SmallCNN"]


class SmallCNN(nn.Module):
    """Two 3×3 convolutions (16 and 32 channels), one pooling, one linear layer.

    Args:
        channels: Input channels.
        size: Height and width of the input, even.
        classes: Number of outputs.
    """

    def __init__(self, channels: int = 1, size: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.linear = nn.Linear(32 * (size // 2) ** 2, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, size, size) to logits (n, classes)."""
        hidden = torch.relu(self.conv1(images))
        hidden = torch.max_pool2d(torch.relu(self.conv2(hidden)), 2)
        logits: Tensor = self.linear(hidden.flatten(1))
        return logits
