"""Fit the membership attack's SVC to all confidences, or to neighbours merged into cells.

See :func:`gradpivot.evaluate.classifiers.membership.svc_attack` for the definition and the merging error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Judge", "fit_all", "fit_merged"]

_PENALTY = 3.0  # the SVC's C

# Merge each class into at most twice this many cells. Half as many nearly always suffice.
_CELLS = 512

_Vector = NDArray[np.float64]
_Integers = NDArray[np.int64]
_Mask = NDArray[np.bool_]
Judge = Callable[[_Vector], _Mask]
"""Maps points to a mask of those classified as members."""


def fit_all(members: _Vector, nonmembers: _Vector) -> Judge:
    """Fit the SVC to all points."""
    labels = np.repeat([1, 0], [members.size, nonmembers.size])
    attack = _fit(np.concatenate([members, nonmembers]), labels)
    return lambda points: np.asarray(attack.predict(points[:, None]) == 1)


def fit_merged(members: _Vector, nonmembers: _Vector) -> Judge:
    """Fit the SVC to cells, then refit with those cells split up that the margin crosses."""
    cells = _Cells.of(members, nonmembers)
    plane = cells.fit()
    crossed = cells.straddling(plane)
    if crossed.any():
        plane = replace(cells, starts=cells.starts | crossed).fit()
    return lambda points: np.asarray(plane.score(points) > 0)


def _fit(points: _Vector, labels: _Integers, counts: _Integers | None = None) -> Any:
    """Fit scikit-learn's SVC; ``counts`` is the number of samples each point represents."""
    # Imported here because importing scikit-learn is slow.
    from sklearn.svm import SVC

    return SVC(C=_PENALTY, gamma="auto", kernel="rbf").fit(points[:, None], labels, counts)


@dataclass(frozen=True)
class _Plane:
    """The fitted SVC in feature space."""

    weights: _Vector
    bias: float

    def score(self, points: _Vector) -> _Vector:
        """W . phi(x) + b, positive for members."""
        scores: _Vector = _features(points) @ self.weights + self.bias
        return scores


def _features(points: _Vector) -> _Vector:
    """phi(x) row by row, with phi(x) . phi(z) = exp(-(x - z)^2) to 1e-15 on [0, 1].

    With t = x - 1/2 and s = z - 1/2, exp(-(x - z)^2) = exp(-t^2) exp(-s^2) sum_k (2 t s)^k / k!,
    so phi_k(x) = exp(-t^2) t^k sqrt(2^k / k!). As |2 t s| <= 1/2, truncating after 14 terms leaves
    (1/2)^14 / 14! = 7e-16. A point then takes 14 operations instead of one exponential for each of
    about 1,500 support vectors.
    """
    centred = points[:, None] - 0.5
    order = np.arange(14)
    scale = np.sqrt([2.0**k / math.factorial(k) for k in order])
    features: _Vector = np.exp(-(centred**2)) * centred**order * scale
    return features


@dataclass(frozen=True)
class _Cells:
    """Training points merged into cells.

    Attributes:
        values: Distinct confidences, sorted within each class, members first.
        counts: Number of samples at each value.
        labels: 1 for members, 0 for non-members.
        starts: Whether a value begins a cell, which extends to the next start.
    """

    values: _Vector
    counts: _Integers
    labels: _Integers
    starts: _Mask

    @classmethod
    def of(cls, members: _Vector, nonmembers: _Vector) -> _Cells:
        known, known_counts = np.unique(members, return_counts=True)
        unknown, unknown_counts = np.unique(nonmembers, return_counts=True)
        return cls(
            np.concatenate([known, unknown]),
            np.concatenate([known_counts, unknown_counts]),
            np.repeat([1, 0], [known.size, unknown.size]),
            np.concatenate([_cell_starts(known), _cell_starts(unknown)]),
        )

    @property
    def first(self) -> _Integers:
        """Index of each cell's first value."""
        return np.flatnonzero(self.starts)

    def fit(self) -> _Plane:
        """Fit the SVC to the cells' means, weighted by their sample counts."""
        sizes = np.add.reduceat(self.counts, self.first)
        means = np.add.reduceat(self.values * self.counts, self.first) / sizes
        attack = _fit(means, self.labels[self.first], sizes)
        weights = attack.dual_coef_[0] @ _features(attack.support_vectors_[:, 0])
        return _Plane(weights, float(attack.intercept_[0]))

    def straddling(self, plane: _Plane) -> _Mask:
        """Mark all values of cells whose ends lie on opposite sides of the margin."""
        outside = (2 * self.labels - 1) * plane.score(self.values) > 1
        last = np.append(self.first[1:], self.values.size) - 1
        crossed: _Mask = (outside[self.first] != outside[last])[np.cumsum(self.starts) - 1]
        return crossed


def _cell_starts(values: _Vector) -> _Mask:
    """Mark the sorted distinct values that begin a cell.

    A cell ends at the next multiple of 1 / 512 or after a 512th of the values, whichever comes
    first. Confidences crowd near 1, where cells of equal width would not separate them.
    """
    by_width = np.floor(values * _CELLS)
    by_count = np.arange(values.size) * _CELLS // values.size
    starts: _Mask = (np.diff(by_width, prepend=-1) != 0) | (np.diff(by_count, prepend=-1) != 0)
    # The outermost values get their own cells: where every multiplier is at a bound, they determine the bias.
    starts[[min(1, values.size - 1), -1]] = True
    return starts
