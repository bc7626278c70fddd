"""Conditions people type, such as ``"UA>=95"``, and picking a point that meets them.

Units: percent in a typed condition, fractions in a mapping (``{"ua": 0.95}``), as everywhere.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.evaluate import find_metric, scored_metrics

__all__ = ["Condition", "check_metric", "parse_conditions"]

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_PATTERN = re.compile(r"^\s*([A-Za-z_][A-Za-z_0-9]*)\s*(>=|<=|>|<)\s*(\d+\.?\d*|\.\d+)\s*(%?)\s*$")
# 0.95 stored as a share of 20 samples is 19/20; comparing it with a typed 95 must not fail by rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Condition:
    """One bound on one score, in the unit of ``Scores``: shares as fractions."""

    metric: str
    comparison: str
    bound: float

    def __str__(self) -> str:
        described = find_metric(self.metric)
        bound = described.scale * self.bound
        sign = "%" if described.unit == "%" and 0 < bound < 1 else ""
        return f"{self.metric.upper()}{self.comparison}{bound:g}{sign}"

    def holds(self, scores: Any) -> bool:
        """Whether ``scores``, which have the metric as an attribute, meet the bound."""
        slack = _ROUNDING if self.comparison == "<=" else -_ROUNDING
        bound = self.bound + (slack if "=" in self.comparison else 0.0)
        return _COMPARISONS[self.comparison](float(getattr(scores, self.metric)), bound)

    def miss(self, scores: Any) -> float:
        """By how much ``scores`` miss the bound; 0 where they meet it."""
        return 0.0 if self.holds(scores) else abs(float(getattr(scores, self.metric)) - self.bound)


def parse_conditions(text: str | Mapping[str, float], metrics: Sequence[str] | None = None) -> tuple[Condition, ...]:
    """Read ``"UA>=95, RA>=99"`` (percent) or ``{"ua": 0.95}`` (fractions: at least; at most where less is better).

    Args:
        text: The conditions.
        metrics: The scores they may be about; those of every evaluation if not given.

    Raises:
        GradPivotError: with the part that could not be read and an example of one that can.
    """
    if isinstance(text, Mapping):
        return tuple(_from_pair(name, bound, metrics) for name, bound in text.items())
    conditions = []
    for part in re.split(r",|\band\b", text):
        match = _PATTERN.match(part)
        if not match:
            raise GradPivotError(
                f"cannot read the condition {part.strip()!r}; write a score, a comparison and a "
                f'percentage, for example "UA>=95, RA>=99"'
            )
        typed, comparison, number, sign = match.groups()
        name = check_metric(typed.lower(), metrics)
        described = find_metric(name)
        if described.unit == "%" and 0 < float(number) < 1 and not sign:
            raise GradPivotError(
                f"{part.strip()} asks for {float(number):g} %; write {typed}{comparison}{100 * float(number):g}, or "
                f"{typed}{comparison}{number}% if that is what you mean"
            )
        conditions.append(_checked(name, comparison, float(number) / described.scale))
    return tuple(conditions)


def check_metric(name: str, metrics: Sequence[str] | None = None) -> str:
    """The score of that name, in the case we use.

    Raises:
        GradPivotError: with the names there are.
    """
    known = [metric.name for metric in scored_metrics()] if metrics is None else metrics
    if name.lower() not in known:
        names = [metric.upper() for metric in known]
        raise GradPivotError(
            f"unknown score {name!r}{did_you_mean(name.upper(), names)} Choose from {', '.join(names)}"
        )
    return name.lower()


def _from_pair(name: str, bound: float, metrics: Sequence[str] | None) -> Condition:
    known = check_metric(name, metrics)
    comparison = ">=" if find_metric(known).is_higher else "<="
    try:
        return _checked(known, comparison, float(bound))
    except (TypeError, ValueError) as error:
        if isinstance(error, GradPivotError):
            raise
        raise GradPivotError(
            f"{name} is compared with {bound!r}; give a fraction, for example {{'ua': 0.95}}"
        ) from None


def _checked(name: str, comparison: str, bound: float) -> Condition:
    described = find_metric(name)
    # Where a score begins above zero, "less than that" can be read, and is refused as a condition that none meets.
    if not min(0.0, described.least) <= bound <= described.most:
        raise GradPivotError(
            f"{name} is compared with {described.scale * bound:g} {described.unit}; it lies {described.range_text()} "
            f"(typed conditions are in percent, mappings in fractions)"
        )
    return Condition(name, comparison, bound)
