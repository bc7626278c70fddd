"""The scores of one classifier as plain JSON-able numbers. No torch.

:mod:`gradpivot.evaluate.metrics` describes each metric.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.metrics.metric import Metric
from gradpivot.evaluate.metrics.registry import (
    all_metrics,
    find_metric,
    headline_metrics,
    scored_metrics,
    standing_metrics,
)
from gradpivot.runtime import Number, checked, is_number

__all__ = ["Scored", "Scores", "wilson_interval"]


class Scored(Protocol):
    """The interface shared by the scores of all kinds of models; see :class:`Scores` for classifiers."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics used by Δ and H."""
        ...

    @property
    def ra(self) -> float:
        """Accuracy on retained data."""
        ...

    @property
    def ua(self) -> float:
        """One minus the accuracy on forgotten data."""
        ...

    def vector(self, metrics: tuple[str, ...] = ...) -> tuple[float, ...]:
        """The named metrics, in that order."""
        ...

    def interval(self, metric: str) -> tuple[float, float]:
        """95 % interval of a fraction."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        ...


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The scores of one classifier, as fractions.

    Attributes:
        ra: Accuracy on the retain set.
        ua: One minus the accuracy on the forget set.
        ta: Accuracy on the test set (without the forgotten classes for class-wise forgetting).
        mia: Fraction of the forget set that a threshold on the true-label confidence classifies as *non-member*.
        mia_accuracy: That threshold's balanced training accuracy; None in records that do not have it.
        mia_determined: False where members and non-members look alike (accuracy below 55 %), so that ``mia`` is noise.
        mia_svc: The same with the paper's RBF-kernel SVC.
        mia_svc_accuracy: That SVC's training accuracy.
        mia_svc_determined: False where the SVC is ill-posed (accuracy below 55 %), so that ``mia_svc`` is noise.
        n_forget: Size of the forget set.
        n_retain: Number of retain samples scored.
        n_test: Size of the test set in scope.
        more: Names and values of further metrics, such as ``auc``, ``uncertainty`` and ``uncertainty_ideal`` (the same
            on held-out data) for forgotten records. Each is also an attribute (NaN if not measured) and a key in JSON.
    """

    ra: float
    ua: float
    ta: float
    mia: float
    mia_accuracy: float | None = None
    mia_determined: bool = True
    mia_svc: float
    mia_svc_accuracy: float
    mia_svc_determined: bool
    n_forget: int
    n_retain: int
    n_test: int
    more: tuple[tuple[str, float], ...] = ()

    if TYPE_CHECKING:

        @property
        def auc(self) -> float:
            """AUC of telling forgotten records from held-out data by confidence."""

        @property
        def uncertainty(self) -> float:
            """Mean 1 − p(true label) on the forget set."""

        @property
        def uncertainty_ideal(self) -> float:
            """The same on held-out data."""

    else:  # so that mypy still reports misspelt attributes

        def __getattr__(self, name: str) -> float:
            for known, value in self.more:
                if known == name:
                    return value
            if not name.startswith("_") and any(m.name == name for m in all_metrics()):
                return math.nan
            raise AttributeError(f"Scores has no {name!r}")

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics used by Δ and H for classes; for records see :func:`gradpivot.evaluate.standing_metrics`."""
        return standing_metrics()

    def text(self, kind: str) -> str:
        """One line for display: the measured headline metrics of this kind of split, fractions in percent."""
        known = self.to_dict()
        shown = (m for m in headline_metrics(kind) if m.variant_of is None and m.name in known)
        return ", ".join(_described(metric, known) for metric in shown)

    @classmethod
    def from_measurements(cls, values: dict[str, Any]) -> Scores:
        """Build from a dictionary of all measured values."""
        known = _names()
        more = tuple((name, value) for name, value in values.items() if name not in known)
        return cls(**{name: values[name] for name in known if name in values}, more=more)

    @classmethod
    def of_diverged(cls, kind: str = "class") -> Scores:
        """The scores assigned to a diverged run: zeros, and the worst value of each further metric."""
        further = (m for m in scored_metrics(kind) if m.name not in _names() and math.isfinite(m.worst))
        return cls(
            ra=0.0, ua=0.0, ta=0.0, mia=0.0, mia_accuracy=0.0, mia_determined=False, mia_svc=0.0, mia_svc_accuracy=0.0,
            mia_svc_determined=False, n_forget=0, n_retain=0, n_test=0, more=tuple((m.name, m.worst) for m in further),
        )  # fmt: skip

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Scores:
        """Inverse of :meth:`to_dict`. Unregistered metrics are kept; an MIA of unknown accuracy counts as determined.

        Raises:
            ValueError: If a value is missing or of another type, or a fraction is not in [0, 1].
        """
        optional = {name: kind for name, kind in _OPTIONAL.items() if name in values}
        checked(values, **dict.fromkeys(_shares(), Number), **_REQUIRED, **optional)
        for name in _shares():
            if not 0 <= values[name] <= 1:
                raise ValueError(f"{name} is {values[name]!r}; it must be between 0 and 1")
        if values.keys() == set(_names()):
            return cls(**values)
        return cls.from_measurements(
            {name: v for name, v in values.items() if is_number(v) or (v is None and name in optional)}
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary, fractions throughout."""
        return {name: getattr(self, name) for name in _names()} | dict(self.more)

    def vector(self, metrics: tuple[str, ...] | None = None) -> tuple[float, ...]:
        """The named metrics, in that order; by default those used by Δ and H."""
        metrics = metrics or standing_metrics()
        values = _getter(metrics)(self)
        return tuple(map(float, values if len(metrics) > 1 else (values,)))

    def interval(self, metric: str) -> tuple[float, float]:
        """95 % Wilson interval of a metric that is a fraction of a set, from the size of that set.

        Raises:
            GradPivotError: If the metric is not a fraction of a set.
        """
        part = find_metric(metric).share_of
        if part is None:
            raise GradPivotError(f"{metric} is not a fraction of a set, so it has no Wilson interval")
        return wilson_interval(float(getattr(self, metric)), getattr(self, f"n_{part}"))


_REQUIRED = {"mia_svc_determined": bool, "n_forget": int, "n_retain": int, "n_test": int}
_OPTIONAL = {"mia_accuracy": Number | None, "mia_determined": bool}


def _described(metric: Metric, known: Mapping[str, Any]) -> str:
    """A score with its name and, if it was measured, its ideal."""
    text, ideal = f"{metric.symbol} {metric.text(known[metric.name])}", known.get(f"{metric.name}_ideal")
    return text if ideal is None else f"{text} ({metric.against} {metric.text(ideal)})"


@functools.cache
def _names() -> tuple[str, ...]:
    """Field names of Scores, cached because looking them up is slower than reading a score."""
    return tuple(field.name for field in fields(Scores) if field.name != "more")


@functools.cache
def _shares() -> tuple[str, ...]:
    return tuple(field.name for field in fields(Scores) if field.type == "float")


@functools.cache
def _getter(metrics: tuple[str, ...]) -> Callable[[Scores], Any]:
    # Ranking 100,000 runs takes a million vectors; this is four times as fast as getattr.
    return attrgetter(*metrics)


def wilson_interval(share: float, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Wilson score interval of a fraction observed on ``n`` samples (95 % by default).

    Unlike the normal approximation, it stays inside [0, 1] and keeps a width at 0 and 1, where unlearning scores
    usually are.
    """
    if n <= 0:
        return 0.0, 1.0
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)
