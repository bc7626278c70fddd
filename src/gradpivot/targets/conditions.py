"""What was asked for: conditions to forget *until*, and conditions to *keep*. Numbers only, no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import METRICS
from gradpivot.results import Condition, parse_conditions

__all__ = ["STEERABLE", "Seen", "Targets", "shortfall", "worst"]

STEERABLE = (*METRICS, "auc")
"""The scores a condition may be about."""
_LEAST = {"auc": 0.5}
"""Where a score does not begin at zero."""

Asked = str | Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Scores on forget, retain and validation data; None where they were not looked at.

    Attributes:
        ra: Accuracy on the retain set.
        ua: One minus the accuracy on the forget set.
        ta: Accuracy on the validation data, in TA's scope.
        mia: Share of the forget set that the threshold attack calls non-member, with validation data as non-members.
        auc: AUC of an attack that tells forget samples from validation data of the same kind by their confidence,
            whichever side is the more confident one: 0.5 … 1, ideal 0.5.
    """

    ra: float | None = None
    ua: float | None = None
    ta: float | None = None
    mia: float | None = None
    auc: float | None = None

    @classmethod
    def of_nothing(cls) -> Seen:
        """The worst there is, for a model whose outputs are not finite."""
        return cls(ra=0.0, ua=0.0, ta=0.0, mia=0.0, auc=1.0)

    def to_dict(self) -> dict[str, float]:
        """Those that were looked at."""
        return {name: value for name in STEERABLE if (value := getattr(self, name)) is not None}

    def with_more(self, other: Seen) -> Seen:
        """These and the other's, of the same model."""
        return Seen(**{**self.to_dict(), **other.to_dict()})


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
        """From ``"UA>=95"`` (percent) or ``{"ua": 0.95}`` (fractions: at least; at most for AUC).

        Raises:
            GradPivotError: for an unknown score, a bound that no model meets, conditions that exclude each other, or
                nothing to forget until.
        """
        if not until:
            raise GradPivotError(
                'there is nothing to forget until; give a condition, for example until="UA>=95"'
            )
        found = cls(parse_conditions(until, STEERABLE), parse_conditions(keep or {}, STEERABLE))
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
            if not _meetable([condition]):
                raise GradPivotError(
                    f"{condition} is met by no model: {condition.metric.upper()} lies between "
                    f"{100 * _LEAST.get(condition.metric, 0.0):g} and 100 %"
                )
            if condition.metric == "auc" and condition.comparison.startswith(">"):
                raise GradPivotError(
                    f"{condition} asks for an attack that works; the ideal AUC is 50 %, write AUC<=60"
                )
        for metric in sorted({condition.metric for condition in everything}):
            same = [condition for condition in everything if condition.metric == metric]
            if not _meetable(same):
                raise GradPivotError(
                    f"{' and '.join(map(str, same))} exclude each other; leave one of them out"
                )


def _meetable(conditions: Iterable[Condition]) -> bool:
    """Whether a score in its range can meet all these conditions on it."""
    low, high, open_low, open_high = 0.0, 1.0, False, False
    for condition in conditions:
        low = max(low, _LEAST.get(condition.metric, 0.0))
        if condition.comparison.startswith(">") and condition.bound >= low:
            low, open_low = (
                condition.bound,
                condition.comparison == ">" or (open_low and condition.bound == low),
            )
        if condition.comparison.startswith("<") and condition.bound <= high:
            high = condition.bound
            open_high = condition.comparison == "<" or (open_high and condition.bound == high)
    return low < high or (low == high and not open_low and not open_high)
