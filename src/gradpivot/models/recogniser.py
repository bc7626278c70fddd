"""A small classifier of generated images; its last features measure the distance between two sets."""

from __future__ import annotations

from torch import Tensor, nn

from gradpivot.models.pixels import Pixels

__all__ = ["Recogniser"]


class Recogniser(nn.Module):
    """Two 3×3 convolutions (16 and 32 channels), each pooled by two, a hidden layer, one linear layer.

    Args:
        classes: Number of outputs.
        channels: Image channels.
        size: Height and width of the images, at least 4.
        width: Width of the hidden layer, whose outputs are the features.
    """

    def __init__(self, classes: int = 10, *, channels: int = 1, size: int = 28, width: int = 64) -> None:
        super().__init__()
        self.width = width
        self.pixels = Pixels()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * (size // 4) ** 2, width), nn.ReLU(),
        )  # fmt: skip
        self.linear = nn.Linear(width, classes)

    def features(self, images: Tensor) -> Tensor:
        """Images (n, channels, size, size), as bytes or in [0, 1], to the last layer's inputs, n×width, ≥ 0."""
        features: Tensor = self.layers(self.pixels(images))
        return features

    def forward(self, images: Tensor) -> Tensor:
        """Images to logits (n, classes)."""
        logits: Tensor = self.linear(self.features(images))
        return logits
