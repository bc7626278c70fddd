"""Pixels as they are stored, turned into what a network computes with: normalisation is part of the model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["CIFAR10_MEAN", "CIFAR10_STD", "Pixels"]

CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR10_STD = (0.2470, 0.2435, 0.2616)
"""Per channel, over the 50,000 training images."""


class Pixels(nn.Module):
    """uint8 images (n, c, h, w) to (x/255 − mean) / std in the model's own precision, channels last.

    Data sets can then stay as bytes on the device, a quarter of the memory, and a saved model cannot be fed with
    another normalisation than it was trained with. Floating-point images are taken to be in [0, 1] already.

    Args:
        mean: One number per channel, or one for all.
        std: The same.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float] = (0.0,), std: Sequence[float] = (1.0,)) -> None:
        super().__init__()
        # Not in the state dict: checkpoints from elsewhere have no such entries.
        self.register_buffer("mean", torch.tensor(mean).reshape(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).reshape(1, -1, 1, 1), persistent=False)
        self._plain = all(m == 0 for m in mean) and all(s == 1 for s in std)

    def forward(self, images: Tensor) -> Tensor:
        """Images of any kind to normalised floating-point ones."""
        if not images.is_floating_point():
            images = images.to(self.mean.dtype).div_(255)
        images = images.contiguous(memory_format=torch.channels_last)
        return images if self._plain else (images - self.mean) / self.std
