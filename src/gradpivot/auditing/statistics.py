"""Areas under ROC curves, rates and their standard errors. Pure functions of NumPy arrays.

``positive`` are scores of members, ``negative`` scores of non-members; a high score says member. Rates and areas are
fractions. Everything depends on the order of the scores alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from gradpivot.errors import GradPivotError

__all__ = [
    "Roc", "TprAtFpr", "auc", "clopper_pearson", "contrast", "delong", "jackknife", "null_variance",
    "paired_difference", "roc", "spread", "tpr_at", "wald",
]  # fmt: skip

_Array = NDArray[np.float64]

_Z95 = 1.959963984540054
"""97.5 % quantile of the standard normal distribution."""


class Roc(NamedTuple):
    """Vertices of an ROC curve as plain lists, from (0, ·) to (1, 1)."""

    fpr: list[float]
    tpr: list[float]


class TprAtFpr(NamedTuple):
    """True-positive rate at a false-positive rate.

    Attributes:
        tpr: Share of the positives above the threshold.
        interval: 95 % Clopper-Pearson interval of ``tpr`` for this threshold.
        allowed: False positives allowed, floor(fpr · m). With 0 the threshold is the highest negative, and the
            negatives are too few to show that the false-positive rate is as low as asked for.
        expected: Expected TPR if positives and negatives come from one continuous distribution,
            (allowed + 1) / (m + 1).
        detected: For each positive, whether it is above the threshold.
    """

    tpr: float
    interval: tuple[float, float]
    allowed: int
    expected: float
    detected: NDArray[np.bool_]


def auc(positive: ArrayLike, negative: ArrayLike) -> float:
    """P(positive > negative) + ½ P(positive = negative) over all pairs, in O(n log n).

    Raises:
        GradPivotError: If one side is empty or a score is NaN.
    """
    members, others = (np.sort(row[0]) for row in _checked(positive, negative))
    below, not_above = (np.searchsorted(others, members, side=side) for side in ("left", "right"))
    # Integers, so that two equal sets give 1/2 exactly.
    return int((below + not_above).sum()) / (2 * members.size * others.size)


def null_variance(n: int, m: int) -> float:
    """Variance (n + m + 1) / 12nm of the AUC if positives and negatives come from one continuous distribution."""
    return (n + m + 1) / (12 * n * m)


def delong(positive: ArrayLike, negative: ArrayLike) -> tuple[_Array, _Array]:
    """AUCs of several scores on the same samples, and their covariance, in O(k n log n).

    With the midrank R of positive i among all samples and r among the positives, its placement is (R − r) / m, the
    share of negatives below it; likewise for the negatives. The AUC is the mean placement, and the covariance is

        S₊ / n + S₋ / m

    with the sample covariances S of the placements (DeLong et al. 1988; midranks by Sun and Xu 2014).

    The placements do not vary where a score separates the samples perfectly (AUC 0 or 1) or is constant, and their
    variance is unknown for a single positive or negative. The variance 0 would then be false certainty:
    :func:`null_variance` replaces it, with covariance 0 to other scores (and full covariance to identical ones).

    Args:
        positive: Scores k×n, or n for one score.
        negative: Scores k×m, or m.

    Returns:
        AUCs (k) and their covariance (k×k).

    Raises:
        GradPivotError: If one side is empty, the number of scores differs or a score is NaN.
    """
    members, others = _checked(positive, negative)
    n, m = members.shape[1], others.shape[1]
    ranks = stats.rankdata(np.hstack([members, others]), axis=1)
    above = (ranks[:, :n] - stats.rankdata(members, axis=1)) / m
    below = 1 - (ranks[:, n:] - stats.rankdata(others, axis=1)) / n
    covariance = _covariance(above) / n + _covariance(below) / m
    flat = np.diag(covariance) <= 1e-15 if min(n, m) > 1 else np.ones(len(members), dtype=bool)
    both = np.hstack([members, others])
    equal = np.array([[np.array_equal(a, b) for b in both] for a in both])
    covariance[flat] = covariance[:, flat] = 0
    covariance[np.ix_(flat, flat)] = null_variance(n, m) * equal[np.ix_(flat, flat)]
    return above.mean(axis=1), covariance


def contrast(estimates: _Array, covariance: _Array, first: int, second: int) -> tuple[float, float]:
    """Difference of two correlated estimates and its standard error."""
    variance = covariance[first, first] + covariance[second, second] - 2 * covariance[first, second]
    return float(estimates[first] - estimates[second]), math.sqrt(max(0.0, float(variance)))


def wald(value: float, error: float) -> tuple[float, float]:
    """95 % interval value ± 1.96 standard errors, cut to [0, 1]."""
    return max(0.0, value - _Z95 * error), min(1.0, value + _Z95 * error)


def spread(values: ArrayLike) -> float | None:
    """Largest difference of the further values from the first: the noise between retrained models; None for one."""
    first, *further = np.asarray(values, dtype=np.float64)
    return max((abs(float(value - first)) for value in further), default=None)


def roc(positive: ArrayLike, negative: ArrayLike, points: int = 200) -> Roc:
    """Vertices of the ROC curve, spaced for a plot with logarithmic axes.

    The first vertex has no false positives. Of the others, at most ``points`` are kept: the ones with the largest
    false-positive rates not above a geometric grid from 1/m to 1. Tied samples lie on a straight edge.
    """
    members, others = (np.sort(row[0]) for row in _checked(positive, negative))
    cuts = np.unique(np.concatenate([members, others]))[::-1]
    hits, alarms = (row.size - np.searchsorted(row, cuts) for row in (members, others))
    # At equal numbers of false positives the last vertex has the most true positives.
    last = np.append(np.flatnonzero(np.diff(alarms)), len(alarms) - 1)
    hits, alarms = hits[last], alarms[last]
    if alarms[0] > 0:
        hits, alarms = np.append(0, hits), np.append(0, alarms)
    grid = np.geomspace(1 / others.size, 1, points) * others.size * (1 + 1e-12)
    kept = np.unique(np.append(0, np.searchsorted(alarms, grid, side="right") - 1))
    return Roc((alarms[kept] / others.size).tolist(), (hits[kept] / members.size).tolist())


def tpr_at(positive: ArrayLike, negative: ArrayLike, fpr: float) -> TprAtFpr:
    """Share of the positives above a threshold that at most a share ``fpr`` of the negatives exceeds.

    The threshold is the negative score that floor(fpr · m) negatives may exceed. With fewer than 1/fpr negatives no
    false positive is allowed; see :class:`TprAtFpr`. The interval is that of the TPR at this threshold: it does not
    include the uncertainty of the threshold.
    """
    members, others = (row[0] for row in _checked(positive, negative))
    allowed = min(others.size - 1, math.floor(fpr * others.size + 1e-9))
    threshold = np.sort(others)[::-1][allowed]
    detected = np.asarray(members > threshold)
    interval = clopper_pearson(int(detected.sum()), members.size)
    return TprAtFpr(float(detected.mean()), interval, allowed, (allowed + 1) / (others.size + 1), detected)


def clopper_pearson(k: int, n: int) -> tuple[float, float]:
    """Exact 95 % interval of a share of which k out of n were seen; (0, 1) if n is 0."""
    low = float(special.betaincinv(k, n - k + 1, 0.025)) if k > 0 else 0.0
    high = float(special.betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
    return low, high


def paired_difference(correct_a: ArrayLike, correct_b: ArrayLike) -> tuple[float, float]:
    """Difference a − b of two accuracies on the same samples, and its standard error.

    With b and c samples that only the one or only the other gets right, p = (b + 1)/(n + 2) and q = (c + 1)/(n + 2),
    the standard error is √((p + q − (p − q)²)/(n + 2)) (Bonett and Price 2012). It is never 0, not even where the two
    agree on every sample. The difference itself is not adjusted.

    Raises:
        GradPivotError: If the samples are not the same number, or none.
    """
    first, second = np.asarray(correct_a, dtype=bool), np.asarray(correct_b, dtype=bool)
    if first.shape != second.shape or first.size == 0:
        raise GradPivotError(f"paired samples are needed; got {first.size} and {second.size}")
    n = first.size
    only_a, only_b = int((first & ~second).sum()), int((second & ~first).sum())
    p, q = (only_a + 1) / (n + 2), (only_b + 1) / (n + 2)
    return (only_a - only_b) / n, math.sqrt((p + q - (p - q) ** 2) / (n + 2))


def jackknife(statistic: Callable[[NDArray[np.intp]], ArrayLike], groups: int) -> _Array:
    """Delete-one-group standard errors √((G − 1)/G · Σ(s₋ᵢ − mean)²).

    Args:
        statistic: Estimates (a number or an array) from the groups of these indices.
        groups: Number of groups G.

    Returns:
        Standard errors in the shape of the estimates.

    Raises:
        GradPivotError: With fewer than two groups.
    """
    if groups < 2:
        raise GradPivotError(f"a jackknife needs at least two groups; got {groups}")
    everything = np.arange(groups)
    found = np.stack([np.asarray(statistic(np.delete(everything, left)), np.float64) for left in everything])
    errors: _Array = np.sqrt((groups - 1) / groups * ((found - found.mean(axis=0)) ** 2).sum(axis=0))
    return errors


def _covariance(placements: _Array) -> _Array:
    """Covariance of the rows, k×k; 0 for a single column."""
    if placements.shape[1] < 2:
        return np.zeros((len(placements), len(placements)))
    return np.cov(placements).reshape(len(placements), -1)


def _checked(positive: ArrayLike, negative: ArrayLike) -> tuple[_Array, _Array]:
    """Both as matrices with a row per score."""
    rows = np.atleast_2d(np.asarray(positive, np.float64)), np.atleast_2d(np.asarray(negative, np.float64))
    if rows[0].shape[1] == 0 or rows[1].shape[1] == 0 or len(rows[0]) != len(rows[1]):
        raise GradPivotError(f"scores have shapes {rows[0].shape} and {rows[1].shape}; both sides need samples")
    if any(np.isnan(row).any() for row in rows):
        raise GradPivotError("a score is NaN; a model with NaN outputs has diverged and cannot be attacked")
    return rows
