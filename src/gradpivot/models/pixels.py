"""Conversion of stored pixels to network inputs: normalisation is part of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gradpivot.models.images import CIFAR10_MEAN, CIFAR10_STD

__all__ = ["CIFAR10_MEAN", "CIFAR10_STD", "OnPixels", "Pixels"]


class Pixels(nn.Module):
    """uint8 images (n, c, h, w) to (x/255 − mean) / std in the model's own precision, channels last.

    Datasets can stay uint8 on the device, which takes a quarter of the memory. Weights files record the mean and std,
    and a model with different ones refuses them. Floating-point images are assumed to be in [0, 1].

    Args:
        mean: One number per channel, or one for all.
        std: One number per channel, or one for all.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float] = (0.0,), std: Sequence[float] = (1.0,)) -> None:
        super().__init__()
        # Not in the state dict: checkpoints from elsewhere have no such entries.
        for name, values in (("mean", mean), ("std", std)):
            per_channel = torch.tensor(values, dtype=torch.get_default_dtype()).reshape(1, -1, 1, 1)
            self.register_buffer(name, per_channel, persistent=False)
        self._plain = all(m == 0 for m in mean) and all(s == 1 for s in std)

    def forward(self, images: Tensor) -> Tensor:
        """Convert images to normalised floating-point inputs."""
        if not images.is_floating_point():
            images = images.to(self.mean.dtype).div_(255)
        # Inside vmap (per-sample gradients) a layout cannot be asked for.
        if not torch._C._functorch.is_functorch_wrapped_tensor(images):
            images = images.contiguous(memory_format=torch.channels_last)
        return images if self._plain else (images - self.mean) / self.std


class OnPixels(nn.Module):
    """A model of floating-point images with :class:`Pixels` in front; its weights are under ``model.``.

    The images are contiguous, because ``view`` in third-party models fails on channels-last tensors.

    Args:
        pixels: Converts stored images to inputs.
        model: From such inputs to logits, or to anything that has them.
    """

    def __init__(self, pixels: Pixels, model: nn.Module) -> None:
        super().__init__()
        self.pixels = pixels
        self.model = model

    def forward(self, images: Tensor) -> Any:
        """Stored images to the model's output."""
        return self.model(self.pixels(images).contiguous())
