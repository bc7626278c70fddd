r"""Linear interpolation between two sets of weights: θ(s) = θ₀ + s(θ₁ − θ₀).

A model unlearned for a few epochs stays close to the original, and the loss along the line between them is smooth
(linear mode connectivity; Frankle et al., 2020, arXiv:1912.05671). Intermediate degrees of forgetting therefore cost
forward passes only.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from gradpivot.errors import GradPivotError

__all__ = ["Segment", "false_position"]


class Segment:
    """The line between two models: parameters and floating-point buffers.

    Args:
        start: θ₀; copied.
    """

    def __init__(self, start: nn.Module) -> None:
        self._start = [tensor.detach().clone() for tensor in _moving(start)]
        self._end: list[Tensor] | None = None

    @torch.no_grad()
    def restore_start(self, model: nn.Module) -> None:
        """Set ``model`` to θ₀."""
        for tensor, start in zip(_moving(model), self._start, strict=True):
            tensor.copy_(start)

    def set_end(self, end: nn.Module) -> None:
        """Set θ₁ to the model's current values.

        Raises:
            GradPivotError: If the shapes differ from θ₀.
        """
        found = [tensor.detach().clone() for tensor in _moving(end)]
        if [t.shape for t in found] != [t.shape for t in self._start]:
            raise GradPivotError("the two models have weights of different shapes; use models of the same architecture")
        self._end = found

    @torch.no_grad()
    def interpolate(self, model: nn.Module, share: float) -> None:
        """Set ``model`` to θ₀ + share·(θ₁ − θ₀), exact at 0 and 1. A share above 1 extrapolates."""
        if self._end is None:
            raise GradPivotError("the segment has no end; call set_end(model) first")
        for tensor, start, end in zip(_moving(model), self._start, self._end, strict=True):
            if share in (0, 1):
                # No arithmetic: 0·NaN is NaN, and θ₁ may have diverged.
                tensor.copy_(end if share else start)
            else:
                tensor.copy_(torch.lerp(start, end, share))


def _moving(model: nn.Module) -> list[Tensor]:
    """Parameters and floating-point buffers, without integer counters."""
    tensors = [*model.parameters(), *model.buffers()]
    return [tensor for tensor in tensors if tensor.is_floating_point()]


def false_position(
    measured: Callable[[float], float],
    wanted: float,
    *,
    between: tuple[tuple[float, float], tuple[float, float]],
    tolerance: float,
    max_evaluations: int = 8,
) -> tuple[float, float]:
    """Find the share at which ``measured`` is closest to ``wanted``, by the Illinois variant of false position.

    Returns the best point evaluated, so that the function need not be exactly monotone.

    Args:
        measured: Maps a share to a score.
        wanted: The target score.
        between: Two (share, score) pairs, the first below ``wanted`` and the second above.
        tolerance: Stop within this distance of ``wanted``.
        max_evaluations: Maximum number of evaluations.

    Returns:
        The share and its score.
    """
    (low, below), (high, above) = ((share, score - wanted) for share, score in between)
    seen: list[tuple[float, float]] = []
    for _ in range(max_evaluations):
        share = low + (high - low) * below / (below - above)
        value = measured(share)
        was_below = bool(seen) and seen[-1][1] < wanted
        was_above = bool(seen) and not was_below
        seen.append((share, value))
        if abs(value - wanted) <= tolerance:
            break
        if value < wanted:
            low, below, above = share, value - wanted, above / 2 if was_below else above
        else:
            high, above, below = share, value - wanted, below / 2 if was_above else below
    return min(seen, key=lambda found: abs(found[1] - wanted))
