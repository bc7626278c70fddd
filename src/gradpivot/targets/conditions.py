"""The conditions of a target, ``until`` and ``keep``. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import all_metrics, find_metric, steering_metrics
from gradpivot.results import Condition, metric_name, parse_conditions

__all__ = ["Seen", "Targets", "shortfall", "worst"]

ConditionSpec = str | Mapping[str, float]


@dataclass(frozen=True, init=False)
class Seen:
    """Scores measured during a search. Each metric is an attribute, None if it was not measured."""

    values: tuple[tuple[str, float], ...]

    def __init__(self, **values: float | None) -> None:
        ordered = [(metric.name, values.pop(metric.name, None)) for metric in all_metrics()]
        if values:
            raise TypeError(f"Seen has no {next(iter(values))!r}")
        object.__setattr__(self, "values", tuple((n, value) for n, value in ordered if value is not None))

    if TYPE_CHECKING:
        ra: float | None
        ua: float | None
        ta: float | None
        mia: float | None
        auc: float | None
        margin_auc: float | None
        rmia: float | None
        uncertainty: float | None
        recovery: float | None
        relearn: float | None
    else:

        def __getattr__(self, name: str) -> float | None:
            if name.startswith("_") or name not in steering_metrics():
                raise AttributeError(f"Seen has no {name!r}")
            return self.to_dict().get(name)

    @classmethod
    def of_nothing(cls) -> Seen:
        """The worst scores, for a model whose outputs are not finite."""
        return cls(**{name: find_metric(name).worst for name in steering_metrics()})

    def to_dict(self) -> dict[str, float]:
        """The measured scores."""
        return dict(self.values)

    def with_more(self, other: Seen) -> Seen:
        """Merge with further scores of the same model."""
        return Seen(**{**self.to_dict(), **other.to_dict()})

    def __str__(self) -> str:
        return ", ".join(f"{metric_name(name)} {find_metric(name).text(value)}" for name, value in self.values)


def shortfall(condition: Condition, seen: Seen) -> float:
    """By how much a score misses its bound; negative if the condition holds."""
    value = find_metric(condition.metric).folded(getattr(seen, condition.metric))
    return condition.bound - value if condition.comparison.startswith(">") else value - condition.bound


def worst(conditions: Iterable[Condition], seen: Seen) -> Condition | None:
    """The condition missed by the most; None if all hold."""
    failing = [condition for condition in conditions if not condition.holds(seen)]
    return max(failing, key=lambda condition: shortfall(condition, seen), default=None)


@dataclass(frozen=True)
class Targets:
    """The validated conditions of a target.

    Attributes:
        until: Forget until these hold.
        keep: Conditions that must hold too.
    """

    until: tuple[Condition, ...]
    keep: tuple[Condition, ...] = ()

    @classmethod
    def read(cls, until: ConditionSpec | None, keep: ConditionSpec | None = None) -> Targets:
        """Parse ``"UA>=95"`` (percent) or ``{"ua": 0.95}`` (fractions; a maximum if lower is better).

        Raises:
            GradPivotError: For an unknown score, a bound that no model can meet, conflicting conditions, or an empty
                ``until``.
        """
        if not until:
            raise GradPivotError('until is empty; pass a condition, for example until="UA>=95"')
        found = cls(*(parse_conditions(given or {}, steering_metrics()) for given in (until, keep)))
        found._check()
        return found

    @property
    def metrics_until(self) -> frozenset[str]:
        """The metrics in ``until``."""
        return frozenset(condition.metric for condition in self.until)

    @property
    def metrics_keep(self) -> frozenset[str]:
        """The metrics in ``keep``."""
        return frozenset(condition.metric for condition in self.keep)

    @property
    def may_overshoot(self) -> bool:
        """Whether forgetting more can violate a condition of ``until``."""
        return any(condition.comparison.startswith("<") for condition in self.until)

    @property
    def are_about_records(self) -> bool:
        """Whether ``until`` compares the forget set with held-out data only, as γ does for records."""
        return all("unseen" in find_metric(name).reads for name in self.metrics_until)

    def asked_ua(self) -> float | None:
        """The minimum UA in ``until``; None if ``until`` has any other condition."""
        if any(c.metric != "ua" or not c.comparison.startswith(">") for c in self.until):
            return None
        return max(c.bound for c in self.until)

    def __str__(self) -> str:
        until, keep = (", ".join(map(str, conditions)) for conditions in (self.until, self.keep))
        return f"{until} with {keep}" if keep else until

    def _check(self) -> None:
        everything = (*self.until, *self.keep)
        for condition in everything:
            metric = find_metric(condition.metric)
            if not _meetable([condition]):
                raise GradPivotError(
                    f"no model can meet {condition}: {metric_name(metric.name)} is {metric.range_text()}"
                )
            if condition.comparison.startswith(">") and not metric.is_higher and metric.ideal == metric.low:
                raise GradPivotError(
                    f"{condition} requires a bad score; lower is better and the ideal {metric_name(metric.name)} is "
                    f"{metric.scale * metric.ideal:g} {metric.unit}, write {metric_name(metric.name)}<="
                    f"{metric.scale * condition.bound:g}"
                )
        for name in sorted({condition.metric for condition in everything}):
            same = [condition for condition in everything if condition.metric == name]
            if not _meetable(same):
                raise GradPivotError(f"{' and '.join(map(str, same))} exclude each other; remove one of them")


def _meetable(conditions: Iterable[Condition]) -> bool:
    """Whether a score within its range can meet all these conditions."""
    low, high, open_low, open_high = -math.inf, math.inf, False, False
    for condition in conditions:
        metric = find_metric(condition.metric)
        low, high = max(low, metric.low), min(high, metric.most)
        if condition.comparison.startswith(">") and condition.bound >= low:
            low, open_low = (condition.bound, condition.comparison == ">" or (open_low and condition.bound == low))
        if condition.comparison.startswith("<") and condition.bound <= high:
            high, open_high = (condition.bound, condition.comparison == "<" or (open_high and condition.bound == high))
    return low < high or (low == high and not open_low and not open_high)
