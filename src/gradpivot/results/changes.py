"""Measured changes of the two losses, from the history of a run that recorded them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["really_changed"]

ROUNDING = 1e-6
"""Smaller changes are float32 rounding error."""


def really_changed(history: Mapping[str, Sequence[Any]]) -> tuple[list[float], list[float]]:
    """The changes of L_f and L_r on the batches of each step, without reverted steps and rounding error.

    A step with negative intensity raises L_f on purpose, so its change of L_f counts as zero.
    """
    columns = (history[name] for name in ("forget_change", "retain_change", "taken_back", "intensity"))
    kept = [(f, r, i) for f, r, reverted, i in zip(*columns, strict=True) if not reverted and None not in (f, r)]
    forget = [0.0 if intensity < 0 else _drop_rounding(f) for f, _, intensity in kept]
    return forget, [_drop_rounding(r) for _, r, _ in kept]


def _drop_rounding(change: float) -> float:
    return 0.0 if abs(change) <= ROUNDING else change
