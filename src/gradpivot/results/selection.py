"""Conditions on scores, such as ``"UA>=95"``.

Strings are in percent, mappings (``{"ua": 0.95}``) in fractions.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.evaluate import find_metric, scored_metrics

__all__ = ["Condition", "check_metric", "metric_name", "parse_conditions"]

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_PATTERN = re.compile(r"^\s*([A-Za-z_][A-Za-z_0-9-]*)\s*(>=|<=|>|<)\s*(\d+\.?\d*|\.\d+)\s*(%?)\s*$")
# UA>=95 must hold for 19 of 20 samples despite floating-point error.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Condition:
    """A bound on a score, in the unit of ``Scores`` (fractions)."""

    metric: str
    comparison: str
    bound: float

    def __str__(self) -> str:
        described = find_metric(self.metric)
        bound = described.scale * self.bound
        sign = "%" if described.unit == "%" and 0 < bound < 1 else ""
        return f"{metric_name(self.metric)}{self.comparison}{bound:g}{sign}"

    def holds(self, scores: Any) -> bool:
        """Whether ``scores``, an object with the metric as an attribute, meets the bound."""
        slack = _ROUNDING if self.comparison == "<=" else -_ROUNDING
        bound = self.bound + (slack if "=" in self.comparison else 0.0)
        return _COMPARISONS[self.comparison](self._value(scores), bound)

    def miss(self, scores: Any) -> float:
        """By how much ``scores`` misses the bound; 0 if it meets it."""
        return 0.0 if self.holds(scores) else abs(self._value(scores) - self.bound)

    def _value(self, scores: Any) -> float:
        return find_metric(self.metric).folded(float(getattr(scores, self.metric)))


def parse_conditions(text: str | Mapping[str, float], metrics: Sequence[str] | None = None) -> tuple[Condition, ...]:
    """Parse ``"UA>=95, RA>=99"`` (percent) or ``{"ua": 0.95}`` (fractions; a maximum if lower is better).

    Args:
        text: The conditions.
        metrics: The allowed metrics. Default: those of every evaluation.

    Raises:
        GradPivotError: If a condition cannot be parsed, or refers to an unknown metric.
    """
    if isinstance(text, Mapping):
        return tuple(_from_pair(name, bound, metrics) for name, bound in text.items())
    if not isinstance(text, str):
        raise GradPivotError(f'the conditions are {text!r}; write "UA>=95, RA>=99" or {{"ua": 0.95, "ra": 0.99}}')
    conditions = []
    for part in re.split(r",|\band\b", text):
        match = _PATTERN.match(part)
        if not match:
            raise GradPivotError(
                f"cannot read the condition {part.strip()!r}; write a score, a comparison and a "
                f'percentage, for example "UA>=95, RA>=99"'
            )
        typed, comparison, number, sign = match.groups()
        name = check_metric(typed, metrics)
        described = find_metric(name)
        if described.unit == "%" and 0 < float(number) < 1 and not sign:
            raise GradPivotError(
                f"{part.strip()} asks for {float(number):g} %; write {typed}{comparison}{100 * float(number):g}, or "
                f"{typed}{comparison}{number}% if that is what you mean"
            )
        conditions.append(_checked(name, comparison, float(number) / described.scale))
    return tuple(conditions)


def metric_name(name: str) -> str:
    """The name of a metric as conditions and messages write it, such as MIA-SVC for ``mia_svc``."""
    return name.upper().replace("_", "-")


def check_metric(name: str, metrics: Sequence[str] | None = None) -> str:
    """Return the name of a metric in lower case. ``MIA-SVC`` and ``mia_svc`` are the same.

    Raises:
        GradPivotError: If there is no such metric.
    """
    known = [metric.name for metric in scored_metrics()] if metrics is None else metrics
    found = name.lower().replace("-", "_")
    if found not in known:
        names = [metric_name(metric) for metric in known]
        hint = did_you_mean(metric_name(name), names)
        raise GradPivotError(f"unknown score {name!r}{hint} Choose from {', '.join(names)}")
    return found


def _from_pair(name: str, bound: float, metrics: Sequence[str] | None) -> Condition:
    known = check_metric(name, metrics)
    comparison = ">=" if find_metric(known).is_higher else "<="
    try:
        return _checked(known, comparison, float(bound))
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, GradPivotError):
            raise
        raise GradPivotError(
            f"{name} is compared with {bound!r}; pass a fraction, for example {{'ua': 0.95}}"
        ) from None


def _checked(name: str, comparison: str, bound: float) -> Condition:
    described = find_metric(name)
    # Accept bounds from zero: a bound below the minimum of a metric is rejected later, as impossible to meet.
    if not min(0.0, described.least) <= bound <= described.most:
        raise GradPivotError(
            f"{name} is compared with {described.scale * bound:g} {described.unit}; use a bound "
            f"{described.range_text()} (strings are in percent, mappings in fractions)"
        )
    return Condition(name, comparison, bound)
