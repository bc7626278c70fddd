"""CIFAR-10: 60,000 colour images of 32×32 pixels in ten classes (Krizhevsky, 2009)."""

from __future__ import annotations

from safetensors.torch import load_file
from torch.utils.data import TensorDataset

from gradpivot.data.cache import cached_file

__all__ = ["load_cifar10"]


def load_cifar10() -> tuple[TensorDataset, TensorDataset]:
    """Train (50,000) and test (10,000) sets of (3×32×32 uint8 image, class)."""
    data = load_file(cached_file("cifar10", "data.safetensors"))
    return (
        TensorDataset(data["train_images"], data["train_labels"]),
        TensorDataset(data["test_images"], data["test_labels"]),
    )
