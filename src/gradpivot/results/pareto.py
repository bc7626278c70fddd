"""Dominance and hypervolume of a set of score vectors, exact in any dimension through moocore.

References:
    Zitzler & Thiele (1998), "Multiobjective optimization using evolutionary algorithms".
    Guerreiro, Fonseca & Paquete (2021), "The hypervolume indicator".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["distance", "epsilon_to", "hypervolume", "nondominated"]

Vector = Sequence[float]


def hypervolume(vectors: Sequence[Vector] | NDArray[np.float64]) -> float:
    """The volume dominated by ``vectors`` above the origin: H(S) of the paper's Definition 1.

    Args:
        vectors: n points of the same dimension m, higher is better, in [0, 1].

    Returns:
        A number in [0, 1]; multiply by 100 for the paper's scale. Exact; O(n log n) for m ≤ 3 and
        O(n²) for m = 4 (moocore).
    """
    if len(vectors) == 0:
        return 0.0
    import numpy as np

    points = np.asarray(vectors, dtype=float)
    if not np.isfinite(points).all():
        raise ValueError("hypervolume needs finite scores; count a diverged run as zeros")
    # A point on a coordinate plane dominates no volume, and moocore wants points above the reference.
    points = points[(points > 0).all(axis=1)]
    if len(points) == 0:
        return 0.0
    return float(_volume(points.shape[1])(points))


@functools.cache
def _volume(dimension: int) -> Callable[[NDArray[np.float64]], float]:
    # One object a dimension: moocore.hypervolume() spends more time on its reference point than on 20 points.
    import moocore

    measure: Callable[[NDArray[np.float64]], float] = moocore.Hypervolume(ref=[0.0] * dimension, maximise=True)
    return measure


def nondominated(vectors: Sequence[Vector]) -> list[bool]:
    """Which of ``vectors`` no other one beats: at least as good everywhere and better somewhere.

    Equal points are all kept, because two settings with the same scores are both answers.
    """
    if not vectors:
        return []
    import moocore
    import numpy as np

    points = np.asarray(vectors, dtype=float)
    return [bool(b) for b in moocore.is_nondominated(points, maximise=True, keep_weakly=True)]


def distance(scores: Vector, reference: Vector) -> float:
    """The Euclidean distance ‖A(reference) − A(θ)‖₂, in the units of the scores."""
    return math.dist(scores, reference)


def epsilon_to(vectors: Sequence[Vector], front: Sequence[Vector]) -> float:
    """The additive ε-indicator: how far ``vectors`` must be raised to weakly dominate every point of ``front``.

    0 for the front itself. Unlike the hypervolume, one good point does not hide gaps elsewhere.
    """
    import moocore
    import numpy as np

    return float(moocore.epsilon_additive(np.asarray(vectors), ref=np.asarray(front), maximise=True))
