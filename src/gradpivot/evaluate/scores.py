"""The scores of one model: plain numbers, no torch, ready for JSON.

What each metric is stands in its description (:mod:`gradpivot.evaluate.metrics`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.metrics.registry import all_metrics, find_metric, scored_metrics, standing_metrics

__all__ = ["Scored", "Scores", "wilson_interval"]


class Scored(Protocol):
    """What the scores of any kind of model have: a classifier's are :class:`Scores`, a generator's others."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """What Δ and H are taken on."""
        ...

    @property
    def ra(self) -> float:
        """How much of what is to be kept is right."""
        ...

    @property
    def ua(self) -> float:
        """How much of what is to be forgotten is wrong."""
        ...

    def vector(self, metrics: tuple[str, ...] = ...) -> tuple[float, ...]:
        """The scores named, in that order."""
        ...

    def interval(self, metric: str) -> tuple[float, float]:
        """A 95 % interval of a share."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        ...


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What one forward pass over each set says about a model.

    Attributes:
        ra: Accuracy on the retain set.
        ua: One minus the accuracy on the forget set.
        ta: Accuracy on the test set (without the forgotten classes for class-wise forgetting).
        mia: Share of the forget set that a membership attack calls *non-member*: the ``clean`` form, the
            best single threshold on the true-label confidence.
        mia_svc: The same by the paper's RBF-kernel SVC.
        mia_svc_accuracy: That SVC's accuracy on its own training points.
        mia_svc_determined: False where the SVC is ill-posed (accuracy below 55 %) and ``mia_svc`` is
            therefore noise.
        n_forget: Size of the forget set.
        n_retain: Size of the retain set that was scored.
        n_test: Size of the test set in scope.
        more: The values of further registered metrics by name; each is an attribute too (NaN where it was not
            measured) and stands beside the others in JSON.
    """

    ra: float
    ua: float
    ta: float
    mia: float
    mia_svc: float
    mia_svc_accuracy: float
    mia_svc_determined: bool
    n_forget: int
    n_retain: int
    n_test: int
    more: tuple[tuple[str, float], ...] = ()

    if not TYPE_CHECKING:  # a mistyped attribute is still found by mypy

        def __getattr__(self, name: str) -> float:
            for known, value in self.more:
                if known == name:
                    return value
            if not name.startswith("_") and any(m.name == name for m in all_metrics()):
                return math.nan
            raise AttributeError(f"Scores has no {name!r}")

    @property
    def metrics(self) -> tuple[str, ...]:
        """What Δ and H are taken on."""
        return standing_metrics()

    @classmethod
    def of_measured(cls, values: dict[str, Any]) -> Scores:
        """From everything that was measured, by name."""
        known = _names()
        more = tuple((name, value) for name, value in values.items() if name not in known)
        return cls(**{name: values[name] for name in known}, more=more)

    @classmethod
    def of_diverged(cls) -> Scores:
        """The scores a diverged run counts with: (0, 0, 0, 0), never dropped; of further metrics the worst there is."""
        further = (m for m in scored_metrics() if m.name not in _names() and math.isfinite(m.worst))
        return cls(
            ra=0.0, ua=0.0, ta=0.0, mia=0.0, mia_svc=0.0, mia_svc_accuracy=0.0,
            mia_svc_determined=False, n_forget=0, n_retain=0, n_test=0, more=tuple((m.name, m.worst) for m in further),
        )  # fmt: skip

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Scores:
        """Read back what :meth:`to_dict` wrote; a metric that is not registered here keeps its value.

        Raises:
            ValueError: if a share is not a number in [0, 1].
        """
        for name in _shares():
            share = values[name]
            if not isinstance(share, (int, float)) or not 0 <= share <= 1:
                raise ValueError(f"{name} is {share!r}, not a share between 0 and 1")
        if len(values) == len(_names()):
            return cls(**values)
        return cls.of_measured({name: v for name, v in values.items() if isinstance(v, (int, float))})

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary, fractions throughout."""
        return {name: getattr(self, name) for name in _names()} | dict(self.more)

    def vector(self, metrics: tuple[str, ...] | None = None) -> tuple[float, ...]:
        """The scores named, in that order; those that Δ and H are taken on if none are."""
        metrics = metrics or standing_metrics()
        values = _getter(metrics)(self)
        return tuple(map(float, values if len(metrics) > 1 else (values,)))

    def interval(self, metric: str) -> tuple[float, float]:
        """A 95 % Wilson interval for a metric that is a share of a set, from the size of that set.

        Raises:
            GradPivotError: if it is none.
        """
        part = find_metric(metric).share_of
        if part is None:
            raise GradPivotError(f"{metric} is no share of a set and has no Wilson interval")
        return wilson_interval(float(getattr(self, metric)), getattr(self, f"n_{part}"))


@functools.cache
def _names() -> tuple[str, ...]:
    """The fields of Scores; looking them up takes longer than reading a score, and a sweep has 100,000."""
    return tuple(field.name for field in fields(Scores) if field.name != "more")


@functools.cache
def _shares() -> tuple[str, ...]:
    return tuple(field.name for field in fields(Scores) if field.type == "float")


@functools.cache
def _getter(metrics: tuple[str, ...]) -> Callable[[Scores], Any]:
    # Standings of 100,000 runs ask for a million vectors; this is four times as fast as getattr by name.
    return attrgetter(*metrics)


def wilson_interval(share: float, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """The Wilson score interval of a share observed on ``n`` samples (95 % by default).

    Unlike the normal approximation it stays inside [0, 1] and does not shrink to nothing at 0 and 1, where
    unlearning scores usually are.
    """
    if n <= 0:
        return 0.0, 1.0
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)
