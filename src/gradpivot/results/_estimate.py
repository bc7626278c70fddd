"""Statistics over several (class, seed) sets: mean, 95 % Student interval, rank correlation. No torch."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

__all__ = ["Estimate", "estimate", "spearman", "student_quantile"]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean with its confidence interval.

    Attributes:
        mean: The arithmetic mean.
        std: The sample standard deviation (n − 1); None for one value.
        n: Number of values.
        low: Lower end of the 95 % Student interval of the mean; None for one value.
        high: Upper end.
    """

    mean: float
    std: float | None
    n: int
    low: float | None
    high: float | None

    def to_dict(self) -> dict[str, float | None]:
        """A JSON-able dictionary."""
        return asdict(self)


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """Mean, standard deviation and 95 % Student interval of the values, ignoring None; None if there are none.

    The interval assumes independent values. Sums are exact, so the order of the values does not matter.
    """
    known = [float(value) for value in values if value is not None]
    n = len(known)
    if n == 0:
        return None
    mean = math.fsum(known) / n
    if n == 1:
        return Estimate(mean=mean, std=None, n=1, low=None, high=None)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / (n - 1))
    half = student_quantile(n - 1) * std / math.sqrt(n)
    return Estimate(mean=mean, std=std, n=n, low=mean - half, high=mean + half)


@functools.cache
def student_quantile(degrees: int, level: float = 0.95) -> float:
    """Two-sided quantile of Student's t, for example 12.71 for one degree of freedom at 95 %."""
    # scipy.stats takes over half a second to import.
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + level) / 2))


def spearman(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Spearman's ρ, with mean ranks for ties; None if one side is constant.

    References:
        Spearman (1904), "The proof and measurement of association between two things".
    """
    if len(set(x)) < 2 or len(set(y)) < 2:
        return None
    return statistics.correlation(_ranks(x), _ranks(y))


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, with mean ranks for ties."""
    order = sorted(values)
    first: dict[float, int] = {}
    count: dict[float, int] = {}
    for position, value in enumerate(order, start=1):
        first.setdefault(value, position)
        count[value] = count.get(value, 0) + 1
    return [first[value] + (count[value] - 1) / 2 for value in values]
