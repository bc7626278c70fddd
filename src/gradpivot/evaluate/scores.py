"""The scores of one model: plain numbers, no torch, ready for JSON.

RA, UA, TA and MIA are fractions in [0, 1]; higher is better for class-wise forgetting. For random
subsets the ideal is the retrained model's value (see :mod:`gradpivot.results.frontier`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar, Protocol

__all__ = ["METRICS", "Scored", "Scores", "wilson_interval"]

METRICS = ("ra", "ua", "ta", "mia")
"""The paper's four numbers, in its order."""
_SHARES = (*METRICS, "mia_svc", "mia_svc_accuracy")


class Scored(Protocol):
    """What the scores of any kind of model have: a classifier's are :class:`Scores`, a generator's others."""

    metrics: ClassVar[tuple[str, ...]]
    """What Δ and H are taken on."""

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
    """

    metrics: ClassVar[tuple[str, ...]] = METRICS

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

    @classmethod
    def of_diverged(cls) -> Scores:
        """The scores a diverged run counts with: (0, 0, 0, 0), never dropped."""
        return cls(
            ra=0.0, ua=0.0, ta=0.0, mia=0.0, mia_svc=0.0, mia_svc_accuracy=0.0,
            mia_svc_determined=False, n_forget=0, n_retain=0, n_test=0,
        )  # fmt: skip

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Scores:
        """Read back what :meth:`to_dict` wrote; unknown keys of a newer version are left out.

        Raises:
            ValueError: if a share is not a number in [0, 1].
        """
        for name in _SHARES:
            share = values[name]
            if not isinstance(share, (int, float)) or not 0 <= share <= 1:
                raise ValueError(f"{name} is {share!r}, not a share between 0 and 1")
        return cls(**{name: values[name] for name in _names()})

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary, fractions throughout."""
        return asdict(self)

    def vector(self, metrics: tuple[str, ...] = METRICS) -> tuple[float, ...]:
        """The scores named, in that order."""
        values = _getter(metrics)(self)
        return tuple(map(float, values if len(metrics) > 1 else (values,)))

    def interval(self, metric: str) -> tuple[float, float]:
        """A 95 % Wilson interval for one of the four metrics, from the size of the set it is a share of."""
        sizes = {"ra": self.n_retain, "ua": self.n_forget, "ta": self.n_test, "mia": self.n_forget}
        return wilson_interval(float(getattr(self, metric)), sizes[metric])


@functools.cache
def _names() -> tuple[str, ...]:
    """The fields of Scores; looking them up takes longer than reading a score, and a sweep has 100,000."""
    return tuple(field.name for field in fields(Scores))


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
