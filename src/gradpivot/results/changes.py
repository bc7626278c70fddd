"""What steps really did to the two losses, from the history of a run that looked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["really_changed"]

ROUNDING = 1e-6
"""A loss is a float32: a change below this is none."""


def really_changed(history: Mapping[str, Sequence[Any]]) -> tuple[list[float], list[float]]:
    """The changes of L_f and L_r on their own batches, over the steps that stayed; zero where it is rounding.

    An L_f that rose because it was to be given back (a negative intensity) counts as zero.
    """
    columns = (history[name] for name in ("forget_change", "retain_change", "taken_back", "intensity"))
    stayed = [(f, r, i) for f, r, back, i in zip(*columns, strict=True) if not back and None not in (f, r)]
    forget = [0.0 if intensity < 0 else _exact(f) for f, _, intensity in stayed]
    return forget, [_exact(r) for _, r, _ in stayed]


def _exact(change: float) -> float:
    return 0.0 if abs(change) <= ROUNDING else change
