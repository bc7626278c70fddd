r"""The straight line between two sets of weights: θ(s) = θ₀ + s(θ₁ − θ₀).

A model that was unlearned for a few epochs lies near where it came from, and the losses between the two are as smooth
as they are along the run itself (linear mode connectivity; Frankle et al., 2020, arXiv:1912.05671). So everything
between "nothing forgotten" and "this much forgotten" can be had for forward passes alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from gradpivot.errors import GradPivotError

__all__ = ["Segment", "share_with"]


class Segment:
    """The line between two models of the same shape: weights and floating-point buffers.

    Args:
        start: θ₀; its values are copied.
    """

    def __init__(self, start: nn.Module) -> None:
        self._start = [tensor.detach().clone() for tensor in _moving(start)]
        self._end: list[Tensor] | None = None

    def ends_at(self, end: nn.Module) -> None:
        """Make the model's present values θ₁.

        Raises:
            GradPivotError: if it has other shapes than θ₀.
        """
        found = [tensor.detach().clone() for tensor in _moving(end)]
        if [t.shape for t in found] != [t.shape for t in self._start]:
            raise GradPivotError("the two models have weights of other shapes; there is no line between them")
        self._end = found

    @torch.no_grad()
    def put(self, model: nn.Module, share: float) -> None:
        """Give ``model`` the weights θ₀ + share·(θ₁ − θ₀); at 0 and 1 the ends, bit for bit."""
        if self._end is None:
            raise GradPivotError("the segment has no end yet; call ends_at(model) first")
        for tensor, start, end in zip(_moving(model), self._start, self._end, strict=True):
            if share == 1:
                tensor.copy_(end)
            else:
                # torch.lerp is exact at 0; beyond 1 it extrapolates.
                tensor.copy_(torch.lerp(start, end, share))


def _moving(model: nn.Module) -> list[Tensor]:
    """Weights and floating-point buffers; counters stay what they are."""
    tensors = [*model.parameters(), *model.buffers()]
    return [tensor for tensor in tensors if tensor.is_floating_point()]


def share_with(
    measured: Callable[[float], float],
    wanted: float,
    *,
    between: tuple[float, float] = (0.0, 1.0),
    tolerance: float,
    looks: int = 8,
) -> tuple[float, float]:
    """The share at which ``measured`` is nearest to ``wanted``, by halving; and what it is there.

    Of all that was looked at the nearest is given, so that a function that is not quite monotone does no harm.

    Args:
        measured: The score at a share.
        wanted: The score to land on.
        between: Two shares; the score is below ``wanted`` at the first and above it at the second.
        tolerance: Near enough.
        looks: At most so many measurements.
    """
    low, high = between
    seen: list[tuple[float, float]] = []
    for _ in range(looks):
        middle = (low + high) / 2
        value = measured(middle)
        seen.append((middle, value))
        if abs(value - wanted) <= tolerance:
            break
        low, high = (middle, high) if value < wanted else (low, middle)
    return min(seen, key=lambda found: abs(found[1] - wanted))
