"""Dominance, hypervolume and distance of score vectors, computed exactly by moocore.

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
    """The volume dominated by ``vectors`` above the origin, H(S) in Definition 1 of the paper.

    Args:
        vectors: n points of the same dimension m in [0, 1]; higher is better.

    Returns:
        A number in [0, 1]; multiply by 100 for the paper's scale. O(n log n) for m ≤ 3 and O(n²) for m = 4.

    Raises:
        ValueError: If a score is not finite.
    """
    if len(vectors) == 0:
        return 0.0
    import numpy as np

    points = np.asarray(vectors, dtype=float)
    if not np.isfinite(points).all():
        raise ValueError("the hypervolume needs finite scores; use zeros for a diverged run")
    # A point on a coordinate plane dominates no volume, and moocore requires points above the reference.
    points = points[(points > 0).all(axis=1)]
    if len(points) == 0:
        return 0.0
    return float(_volume(points.shape[1])(points))


@functools.cache
def _volume(dimension: int) -> Callable[[NDArray[np.float64]], float]:
    # Cached, because creating the reference point takes longer than the volume of 20 points.
    import moocore

    measure: Callable[[NDArray[np.float64]], float] = moocore.Hypervolume(ref=[0.0] * dimension, maximise=True)
    return measure


def nondominated(vectors: Sequence[Vector]) -> list[bool]:
    """Flags the Pareto-optimal vectors: no other is at least as good everywhere and better somewhere.

    Equal vectors are all kept.
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
    """The additive ε-indicator: the shift at which ``vectors`` weakly dominates every point of ``front``.

    It is 0 for the front itself. Unlike for the hypervolume, one good point does not hide gaps elsewhere.
    """
    import moocore
    import numpy as np

    return float(moocore.epsilon_additive(np.asarray(vectors), ref=np.asarray(front), maximise=True))
