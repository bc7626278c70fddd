"""The telemetry of a run: one row of columns a step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gradpivot.geometry import describe

if TYPE_CHECKING:
    from gradpivot.geometry import Weights
    from gradpivot.loop.gradients import Gradients

__all__ = ["History", "finite", "row_of"]

Row = dict[str, Any]


class History:
    """What was recorded, step by step.

    Args:
        rows: What an interrupted part of the run has recorded.
    """

    def __init__(self, rows: list[Row] | None = None) -> None:
        self.rows: list[Row] = rows or []

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, row: Row) -> None:
        """Record a step."""
        self.rows.append(row)

    def add_to_last(self, columns: Mapping[str, Any]) -> None:
        """Record more of the step just made."""
        self.rows[-1] |= columns

    @property
    def last(self) -> Row | None:
        """The last step's columns; None before the first."""
        return self.rows[-1] if self.rows else None

    def column(self, name: str) -> list[Any]:
        """One entry a step."""
        return [row[name] for row in self.rows]

    def columns(self) -> dict[str, list[Any]]:
        """Those that the first step has; none before it."""
        return {name: self.column(name) for name in self.rows[0]} if self.rows else {}


def row_of(step: int, gradients: Gradients, weights: Weights, norm: float) -> Row:
    """A step's columns as far as they are known before it is made: all but its real effect."""
    told = describe(gradients.gram, weights, norm)
    losses = (gradients.forget_loss, gradients.retain_loss)
    return {
        "step": step,
        "forget_loss": gradients.forget_loss,
        "retain_loss": gradients.retain_loss,
        "cosine": finite(told.cosine),
        "phi": finite(told.phi),
        "forget_weight": weights.forget,
        "retain_weight": weights.retain,
        "forget_norm": told.forget_norm,
        "retain_norm": told.retain_norm,
        "step_norm": norm,
        "conflict": told.conflict,
        "pareto_stationary": told.pareto_stationary and None not in losses,
        "delta_forget": None,
        "delta_retain": None,
    }


def finite(value: float) -> float | None:
    """The number, or None where it is not finite: NaN is not JSON."""
    return value if math.isfinite(value) else None
