"""Likelihood-ratio attack (LiRA) on margins of many worlds, in each of which a record is inside or outside.

Pure functions. Margins are K×T: world by record. To attack record t in world k, fit a Gaussian to the record's margins
in the *other* worlds where it is inside, and one where it is outside; the score is the log-likelihood ratio

    log N(x; m_in, v_in (1 + 1/n_in)) − log N(x; m_out, v_out (1 + 1/n_out)),

x being the margin in world k, m and n the mean and number of worlds of a side. The factor 1 + 1/n is that of a
prediction: the mean is itself estimated. The variance is shrunk towards the variance V pooled over all records of
the side, as the mean of an inverse-gamma posterior with the weight of w = ``PRIOR_WORLDS`` degrees of freedom
(after BaVarIA, which has a Student posterior):

    v = (w V + Σ (x_k − m)²) / (w + n − 1),      V = Σ_t Σ_k (x_kt − m_t)² / Σ_t (n_t − 1).

Of few worlds: with one world on a side v = V. With none, the mean is that of the other side plus the mean difference
between the sides over the records that have both, and n is that of the other side. If no record has two worlds on a
side, V is pooled over both sides.

References:
    Carlini et al., "Membership Inference Attacks From First Principles", 2022.
    Hayes et al., "Inexact Unlearning Needs More Careful Evaluations to Avoid a False Sense of Privacy", 2024.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradpivot.auditing.statistics import auc, tpr_at
from gradpivot.errors import GradPivotError

__all__ = ["MIN_WORLDS", "PRIOR_WORLDS", "lira_auc", "lira_scores", "lira_tpr", "record_aucs"]

PRIOR_WORLDS = 4.0
"""Weight of the variance pooled over records, in degrees of freedom."""

MIN_WORLDS = 3
"""Fewest worlds for scores: the attacked one and two others."""

_MIN_VARIANCE = 1e-12

_Array = NDArray[np.float64]
_Mask = NDArray[np.bool_]


class _Side(NamedTuple):
    """Per record: number of worlds, mean (0 if none) and sum of squares about it."""

    worlds: _Array
    mean: _Array
    squares: _Array

    @property
    def freedom(self) -> float:
        return float(np.maximum(self.worlds - 1, 0).sum())


def lira_scores(margins: _Array, inside: _Mask) -> _Array:
    """Leave-one-world-out log-likelihood ratios, K×T: high says inside. See the module for the formula.

    Raises:
        GradPivotError: With fewer than ``MIN_WORLDS`` worlds, or masks of another shape.
    """
    if margins.shape != inside.shape or margins.ndim != 2 or len(margins) < MIN_WORLDS:
        raise GradPivotError(
            f"margins have shape {margins.shape}, inside {inside.shape}; both must be worlds × records, "
            f"with at least {MIN_WORLDS} worlds"
        )
    worlds = np.arange(len(margins))
    return np.stack([_attack(margins[k], margins[worlds != k], inside[worlds != k]) for k in worlds])


def lira_auc(margins: _Array, inside: _Mask) -> float:
    """AUC of :func:`lira_scores` over all (record, world)."""
    scores = lira_scores(margins, inside)
    return auc(scores[inside], scores[~inside])


def lira_tpr(margins: _Array, inside: _Mask, fpr: float = 0.01) -> float:
    """True-positive rate of :func:`lira_scores` over all (record, world)."""
    scores = lira_scores(margins, inside)
    return tpr_at(scores[inside], scores[~inside], fpr).tpr


def record_aucs(scores: _Array, inside: _Mask) -> _Array:
    """AUC of each record over the worlds; NaN for a record that is always on one side."""
    mixed = inside.any(axis=0) & ~inside.all(axis=0)
    found = np.full(scores.shape[1], np.nan)
    for t in np.flatnonzero(mixed):
        found[t] = auc(scores[inside[:, t], t], scores[~inside[:, t], t])
    return found


def _attack(attacked: _Array, margins: _Array, inside: _Mask) -> _Array:
    """Log-likelihood ratios of one world's margins (T) from the others'."""
    within, without = _side(margins, inside), _side(margins, ~inside)
    both = (within.worlds > 0) & (without.worlds > 0)
    shift = float((within.mean - without.mean)[both].mean()) if both.any() else 0.0
    pooled = (within.squares.sum() + without.squares.sum()) / max(within.freedom + without.freedom, 1.0)
    likely = _log_density(attacked, within, without, shift, pooled)
    return likely - _log_density(attacked, without, within, -shift, pooled)


def _side(margins: _Array, mask: _Mask) -> _Side:
    count = mask.sum(axis=0).astype(np.float64)
    mean = np.where(mask, margins, 0.0).sum(axis=0) / np.maximum(count, 1)
    return _Side(count, mean, np.where(mask, (margins - mean) ** 2, 0.0).sum(axis=0))


def _log_density(x: _Array, side: _Side, other: _Side, shift: float, pooled: float) -> _Array:
    """Log density of the prediction up to a constant; ``pooled`` replaces a pooled variance that is unknown."""
    prior = max(side.squares.sum() / side.freedom if side.freedom else pooled, _MIN_VARIANCE)
    variance = (PRIOR_WORLDS * prior + side.squares) / (PRIOR_WORLDS + np.maximum(side.worlds - 1, 0))
    known = side.worlds > 0
    mean = np.where(known, side.mean, other.mean + shift)
    predictive = variance * (1 + 1 / np.where(known, side.worlds, other.worlds))
    density: _Array = -0.5 * ((x - mean) ** 2 / predictive + np.log(predictive))
    return density
