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
            if share in (0, 1):
                # 0·NaN is NaN: the way back must not pass through the end.
                tensor.copy_(end if share else start)
            else:
                # Beyond 1 it extrapolates.
                tensor.copy_(torch.lerp(start, end, share))


def _moving(model: nn.Module) -> list[Tensor]:
    """Weights and floating-point buffers; counters stay what they are."""
    tensors = [*model.parameters(), *model.buffers()]
    return [tensor for tensor in tensors if tensor.is_floating_point()]


def share_with(
    measured: Callable[[float], float],
    wanted: float,
    *,
    between: tuple[tuple[float, float], tuple[float, float]],
    tolerance: float,
    looks: int = 8,
) -> tuple[float, float]:
    """The share at which ``measured`` is nearest to ``wanted``, by false position; and what it is there.

    Scores along a line are smooth, so that where the chord crosses is nearer than the middle; an end that stays twice
    counts half (the Illinois rule), so that a bend does not hold it there. Of all that was looked at the nearest is
    given, so that a function that is not quite monotone does no harm.

    Args:
        measured: The score at a share.
        wanted: The score to land on.
        between: Two shares with their scores, the first below ``wanted`` and the second above it.
        tolerance: Near enough.
        looks: At most so many measurements.
    """
    (low, below), (high, above) = ((share, score - wanted) for share, score in between)
    seen: list[tuple[float, float]] = []
    for _ in range(looks):
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
