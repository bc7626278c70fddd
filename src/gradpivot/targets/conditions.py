"""What was asked for: conditions to forget *until*, and conditions to *keep*. Numbers only, no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import all_metrics, find_metric, steering_metrics
from gradpivot.results import Condition, parse_conditions

__all__ = ["Seen", "Targets", "shortfall", "worst"]

Asked = str | Mapping[str, float]


@dataclass(frozen=True, init=False)
class Seen:
    """Scores on forget, retain and validation data: an attribute a metric, None where it was not looked at."""

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
    else:

        def __getattr__(self, name: str) -> float | None:
            if name.startswith("_") or name not in steering_metrics():
                raise AttributeError(f"Seen has no {name!r}")
            return self.to_dict().get(name)

    @classmethod
    def of_nothing(cls) -> Seen:
        """The worst there is, for a model whose outputs are not finite."""
        return cls(**{name: find_metric(name).worst for name in steering_metrics()})

    def to_dict(self) -> dict[str, float]:
        """Those that were looked at."""
        return dict(self.values)

    def with_more(self, other: Seen) -> Seen:
        """These and the other's, of the same model."""
        return Seen(**{**self.to_dict(), **other.to_dict()})

    def __str__(self) -> str:
        return ", ".join(f"{name.upper()} {find_metric(name).text(value)}" for name, value in self.values)


def shortfall(condition: Condition, seen: Seen) -> float:
    """How far a score is from its bound on the wrong side; negative where it is on the right one."""
    value: float = getattr(seen, condition.metric)
    return condition.bound - value if condition.comparison.startswith(">") else value - condition.bound


def worst(conditions: Iterable[Condition], seen: Seen) -> Condition | None:
    """The condition that fails by most; None if all hold."""
    failing = [condition for condition in conditions if not condition.holds(seen)]
    return max(failing, key=lambda condition: shortfall(condition, seen), default=None)


@dataclass(frozen=True)
class Targets:
    """What was asked for, checked.

    Attributes:
        until: Forget until these hold.
        keep: While these hold.
    """

    until: tuple[Condition, ...]
    keep: tuple[Condition, ...] = ()

    @classmethod
    def read(cls, until: Asked | None, keep: Asked | None = None) -> Targets:
        """From ``"UA>=95"`` (percent) or ``{"ua": 0.95}`` (fractions: at least; at most where less is better).

        Raises:
            GradPivotError: for an unknown score, a bound that no model meets, conditions that exclude each other, or
                nothing to forget until.
        """
        if not until:
            raise GradPivotError('there is nothing to forget until; give a condition, for example until="UA>=95"')
        found = cls(*(parse_conditions(some or {}, steering_metrics()) for some in (until, keep)))
        found._check()
        return found

    @property
    def metrics_until(self) -> frozenset[str]:
        """The scores that ``until`` is about."""
        return frozenset(condition.metric for condition in self.until)

    @property
    def metrics_keep(self) -> frozenset[str]:
        """The scores that ``keep`` is about."""
        return frozenset(condition.metric for condition in self.keep)

    @property
    def may_overshoot(self) -> bool:
        """Whether forgetting more can make a condition of ``until`` fail."""
        return any(condition.comparison.startswith("<") for condition in self.until)

    def asked_ua(self) -> float | None:
        """The UA that ``until`` asks for at least; None if something else decides how much is forgotten."""
        if any(c.metric != "ua" or not c.comparison.startswith(">") for c in self.until):
            return None
        return max(c.bound for c in self.until)

    def __str__(self) -> str:
        until, keep = (", ".join(map(str, some)) for some in (self.until, self.keep))
        return f"{until} with {keep}" if keep else until

    def _check(self) -> None:
        everything = (*self.until, *self.keep)
        for condition in everything:
            metric = find_metric(condition.metric)
            if not _meetable([condition]):
                raise GradPivotError(f"no model can meet {condition}: {metric.name.upper()} is {metric.range_text()}")
            if condition.comparison.startswith(">") and not metric.is_higher and metric.ideal == metric.least:
                raise GradPivotError(
                    f"{condition} asks for a bad score; lower is better and the ideal {metric.name.upper()} is "
                    f"{metric.scale * metric.ideal:g} {metric.unit}, write {metric.name.upper()}<="
                    f"{metric.scale * condition.bound:g}"
                )
        for name in sorted({condition.metric for condition in everything}):
            same = [condition for condition in everything if condition.metric == name]
            if not _meetable(same):
                raise GradPivotError(f"{' and '.join(map(str, same))} exclude each other; leave one of them out")


def _meetable(conditions: Iterable[Condition]) -> bool:
    """Whether a score in its range can meet all these conditions on it."""
    low, high, open_low, open_high = -math.inf, math.inf, False, False
    for condition in conditions:
        metric = find_metric(condition.metric)
        low, high = max(low, metric.least), min(high, metric.most)
        if condition.comparison.startswith(">") and condition.bound >= low:
            low, open_low = (condition.bound, condition.comparison == ">" or (open_low and condition.bound == low))
        if condition.comparison.startswith("<") and condition.bound <= high:
            high, open_high = (condition.bound, condition.comparison == "<" or (open_high and condition.bound == high))
    return low < high or (low == high and not open_low and not open_high)
