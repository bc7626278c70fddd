"""Telemetry of a run: one row per step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gradpivot.geometry import case_of

if TYPE_CHECKING:
    from gradpivot.geometry import Weights
    from gradpivot.loop.gradients import Gradients

__all__ = ["History", "finite", "make_row"]

Row = dict[str, Any]


class History:
    """The recorded rows.

    Args:
        rows: Rows from an interrupted part of the run.
    """

    def __init__(self, rows: list[Row] | None = None) -> None:
        self.rows: list[Row] = rows or []

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, row: Row) -> None:
        """Add the row of a step."""
        self.rows.append(row)

    def add_to_last(self, columns: Mapping[str, Any]) -> None:
        """Add columns to the last row."""
        self.rows[-1] |= columns

    @property
    def last(self) -> Row | None:
        """The last row; None before the first step."""
        return self.rows[-1] if self.rows else None

    def column(self, name: str) -> list[Any]:
        """One column, with one entry per step."""
        return [row[name] for row in self.rows]

    def columns(self) -> dict[str, list[Any]]:
        """All columns of the first row; empty before the first step."""
        return {name: self.column(name) for name in self.rows[0]} if self.rows else {}


def make_row(step: int, gradients: Gradients, weights: Weights, norm: float) -> Row:
    """The row of a step before it is taken: everything except its actual effect."""
    gram, losses = gradients.gram, (gradients.forget_loss, gradients.retain_loss)
    cosine = gram.cosine
    return {
        "step": step,
        "forget_loss": gradients.forget_loss,
        "retain_loss": gradients.retain_loss,
        "cosine": finite(cosine),
        "phi": finite(gram.phi),
        "forget_weight": weights.forget,
        "retain_weight": weights.retain,
        "forget_norm": gram.forget_norm,
        "retain_norm": gram.retain_norm,
        "step_norm": norm,
        "conflict": cosine < 0,
        "pareto_stationary": case_of(gram).is_stationary and None not in losses,
        "delta_forget": None,
        "delta_retain": None,
    }


def finite(value: float) -> float | None:
    """The value, or None if it is not finite: JSON has no NaN."""
    return value if math.isfinite(value) else None
