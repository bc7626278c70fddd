"""A small fully connected network."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

__all__ = ["MLP"]


class MLP(nn.Module):
    """Linear layers with ReLU between them.

    Args:
        widths: Sizes from input to output; ``(2, 16, 16, 5)`` is the paper's toy network.
    """

    def __init__(self, widths: Sequence[int] = (2, 16, 16, 5)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, features: Tensor) -> Tensor:
        """Features (n, widths[0]) to logits (n, widths[-1])."""
        logits: Tensor = self.layers(features)
        return logits
