"""Membership-inference attacks: does the forget set look like data the model has never seen?

An attacker sees the confidence p(true label | x) of every sample, learns to separate members (retain
samples) from non-members (test samples), and classifies the forget samples:

    MIA = |{x in forget : classified non-member}| / |forget|.

There are two attacks; a report must say which one it uses.

- ``svc``, the paper's: ``SVC(C=3, gamma="auto", kernel="rbf")`` on the confidence, as in Jia et al.
  2023 ("Model Sparsity Can Simplify Machine Unlearning") and Fan et al. 2024 ("SalUn"). It is not
  monotone, and ill-posed where members and non-members look alike: it may call a confidence of 0
  "member", and another draw of members can reverse its verdict.
- ``threshold``: the cut with the best balanced accuracy, where low confidence means non-member. It
  is monotone and exact, and takes O(n log n).

Either is *undetermined* where members and non-members look alike: where its training accuracy is
below ``MIN_ATTACK_ACCURACY``.

All shares and accuracies are fractions in [0, 1].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.classifiers.svc import fit_all, fit_merged

__all__ = [
    "MIN_ATTACK_ACCURACY", "RMIA_OFFSET", "SvcVerdict", "ThresholdVerdict", "attack_auc", "rmia_auc",
    "rmia_log_ratios", "svc_attack", "threshold_attack",
]  # fmt: skip

MIN_ATTACK_ACCURACY = 0.55
"""Training accuracy (balanced) below which an attack's answer is noise."""

RMIA_OFFSET = 0.3
"""RMIA's offset a, except for forgotten classes."""

_Vector = NDArray[np.float64]


class SvcVerdict(NamedTuple):
    """The SVC's result: ``share`` of the forget set classified non-member, and training ``accuracy``."""

    share: float
    accuracy: float

    @property
    def determined(self) -> bool:
        """Whether the SVC separates members from non-members well enough to be meaningful."""
        return self.accuracy >= MIN_ATTACK_ACCURACY


class ThresholdVerdict(NamedTuple):
    """The threshold's result: ``share`` of the forget set below ``cut``, and balanced ``accuracy``."""

    share: float
    cut: float
    accuracy: float

    @property
    def determined(self) -> bool:
        """Whether the threshold separates members from non-members well enough to be meaningful."""
        return self.accuracy >= MIN_ATTACK_ACCURACY


def svc_attack(members: ArrayLike, nonmembers: ArrayLike, forget: ArrayLike, *, exact_below: int = 4000) -> SvcVerdict:
    """Attack the forget set with ``SVC(C=3, gamma="auto", kernel="rbf")``, as the papers do.

    With y = +1 for members and -1 for non-members, and phi(x) . phi(z) = exp(-(x - z)^2), it solves

        min  1/2 |w|^2 + C sum_i max(0, 1 - y_i (w . phi(x_i) + b)),

    and classifies a sample as non-member where w . phi(x) + b is not positive.

    With fewer than ``exact_below`` training points (n = members + non-members), this fits
    scikit-learn's SVC to all of them, in O(n^2). Otherwise it merges neighbouring points of a class
    into at most 2 · 512 cells and fits the same SVC to the cells' means, with their counts as sample
    weights. For *equal* points this is the same program: multipliers in [0, C] that share a kernel
    row add up to one in [0, C · count]. For nearby points the error is quadratic in their distance,
    except where the margin y (w . phi(x) + b) = 1 crosses a cell. Those few cells are split up and
    the SVC is refitted. The cost is O(n log n) plus two fits of about 1,500 points. Every point
    counts, and nothing is random.

    Where the SVC is determined, the share differs from the unmerged SVC's by less than 0.5
    percentage points, usually by nothing. Larger differences appeared only where the unmerged SVC is
    inaccurate itself: where LIBSVM's stopping rule (``tol=1e-3``) leaves the boundary undecided over
    many forget samples, and where all training points lie within 1e-5 of each other.

    Args:
        members: Confidences of retain samples.
        nonmembers: Confidences of test samples.
        forget: Confidences of the forget samples.
        exact_below: Merge points from this number of training points on; 0 always merges.

    Returns:
        The share of the forget set classified non-member, and the SVC's training accuracy.

    Raises:
        GradPivotError: If an array is empty, not 1-D, or contains values outside [0, 1].

    References:
        Jia et al., "Model Sparsity Can Simplify Machine Unlearning", NeurIPS 2023.
        Fan et al., "SalUn: Empowering Machine Unlearning via Gradient-based Weight Saliency",
        ICLR 2024.
    """
    known, unknown, asked = _checked(members, nonmembers, forget)
    fit = fit_all if known.size + unknown.size < exact_below else fit_merged
    is_member = fit(known, unknown)
    hits = is_member(known).sum() + (~is_member(unknown)).sum()
    return SvcVerdict(float((~is_member(asked)).mean()), float(hits / (known.size + unknown.size)))


def threshold_attack(members: ArrayLike, nonmembers: ArrayLike, forget: ArrayLike) -> ThresholdVerdict:
    """Attack the forget set with the best threshold: confidence < cut means non-member.

    The cut maximises the balanced accuracy

        1/2 (share of non-members below the cut + share of members not below it)

    in O(n log n). A cut lies half-way between neighbouring distinct values of the pooled members and
    non-members. Ties go to the lowest cut, which classifies the fewest samples as non-member. Where
    no cut beats chance (equal confidences, equal sets, or members *less* confident than
    non-members), the cut is the lowest confidence seen: only forget samples below all members and
    non-members then count as non-members.

    The result is monotone: lowering the forget samples' confidences never lowers the share.

    Args:
        members: Confidences of retain samples.
        nonmembers: Confidences of test samples.
        forget: Confidences of the forget samples.

    Returns:
        The share of the forget set below the cut, the cut, and its balanced accuracy.

    Raises:
        GradPivotError: If an array is empty, not 1-D, or contains values outside [0, 1].
    """
    known, unknown, asked = _checked(members, nonmembers, forget)
    values = np.unique(np.concatenate([known, unknown]))
    # Counts strictly below each value: the samples that a cut just under that value classifies as non-members.
    found = np.searchsorted(np.sort(unknown), values)
    lost = np.searchsorted(np.sort(known), values)
    # Integers, so that ties compare equal; argmax takes the first, the lowest.
    gain = found * known.size - lost * unknown.size
    best = int(np.argmax(gain))
    cut = float(values[0]) if best == 0 else _between(values[best - 1], values[best])
    accuracy = 0.5 + int(gain[best]) / (2 * known.size * unknown.size)
    return ThresholdVerdict(float((asked < cut).mean()), cut, accuracy)


def attack_auc(forget: ArrayLike, unseen: ArrayLike) -> float:
    """AUC of separating forget samples from comparable unseen samples by confidence.

        AUC = P(c_forget > c_unseen) + 1/2 P(c_forget = c_unseen)

    over all pairs, the Mann-Whitney statistic, in O(n log n). At 1/2 no threshold separates the two. Above it the
    forget samples are more confident (still remembered), below it less confident (over-forgotten, the "Streisand
    effect"; Golatkar et al., 2020, arXiv:1911.04933).

    Args:
        forget: Confidences of the forget samples.
        unseen: Confidences of unseen samples, of the forgotten classes for class-wise forgetting.

    Returns:
        The directed AUC in [0, 1]. An attacker free to choose the direction achieves max(AUC, 1 - AUC).

    Raises:
        GradPivotError: If an array is empty, not 1-D, or contains values outside [0, 1].
    """
    return _auc(_confidences("forget", forget), _confidences("unseen", unseen))


def _auc(asked: _Vector, unknown: _Vector) -> float:
    unknown = np.sort(unknown)
    below, not_above = (np.searchsorted(unknown, asked, side=side) for side in ("left", "right"))
    # Integers, so that two equal sets give 1/2 exactly.
    return float(int((below + not_above).sum()) / (2 * asked.size * unknown.size))


def rmia_log_ratios(log_p: ArrayLike, references: ArrayLike, offset: float = RMIA_OFFSET) -> _Vector:
    """Logarithms of r(x) = p(x | model) / p(x), RMIA's score per sample (Zarifzadeh, Liu and Shokri 2024).

        p(x) = 1/2 ((1 + a) p̄(x) + (1 - a))

    with the mean p̄ of p(true label | x) over reference models that never saw x, and the offset a, which estimates
    what models trained on x would give.

    Args:
        log_p: log p(true label | x) of the model, one row per model or a vector; float64.
        references: The same of the reference models, one row each.
        offset: a. Use 1, so that p = p̄, for forgotten classes, whose p̄ is near 0.
    """
    known = np.asarray(references, dtype=np.float64)
    mean = np.logaddexp.reduce(known, axis=0) - np.log(len(known))
    if offset < 1:
        mean = np.logaddexp(np.log((1 + offset) / 2) + mean, np.log((1 - offset) / 2))
    ratios: _Vector = np.asarray(log_p, dtype=np.float64) - mean
    return ratios


def rmia_auc(
    forget: ArrayLike,
    unseen: ArrayLike,
    forget_references: ArrayLike,
    unseen_references: ArrayLike,
    *,
    offset: float = RMIA_OFFSET,
) -> float:
    """Directed AUC of RMIA, as :func:`attack_auc` by :func:`rmia_log_ratios` instead of the confidence.

    Args:
        forget: Confidences of the forget samples.
        unseen: Confidences of comparable unseen samples.
        forget_references: Confidences of the reference models on the forget samples, one row per model.
        unseen_references: The same on the unseen samples.
        offset: a of :func:`rmia_log_ratios`.
    """

    def ratios(own: ArrayLike, references: ArrayLike) -> _Vector:
        # A confidence of 0 has no logarithm.
        log_p, known = (np.log(np.maximum(np.asarray(p, dtype=np.float64), 1e-300)) for p in (own, references))
        return rmia_log_ratios(log_p, known, offset)

    return _auc(ratios(forget, forget_references), ratios(unseen, unseen_references))


def _between(low: float, high: float) -> float:
    """The midpoint of two distinct floats, or ``high`` if no float lies between them."""
    middle = low + (high - low) / 2
    return float(middle if middle > low else high)


def _checked(members: ArrayLike, nonmembers: ArrayLike, forget: ArrayLike) -> tuple[_Vector, _Vector, _Vector]:
    return (_confidences("members", members), _confidences("nonmembers", nonmembers), _confidences("forget", forget))


def _confidences(name: str, values: ArrayLike) -> _Vector:
    """Convert ``values`` to a float64 vector and check that they are probabilities."""
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1:
        raise GradPivotError(
            f"{name} has shape {vector.shape}; it must be 1-D: pass one true-label confidence per "
            f"sample, such as probabilities[range(n), labels]"
        )
    if vector.size == 0:
        raise GradPivotError(f"{name} is empty; pass at least one confidence")
    wrong = np.flatnonzero(~((vector >= 0) & (vector <= 1)))
    if wrong.size:
        at = wrong[0]
        raise GradPivotError(
            f"{name}[{at}] is {vector[at]}; it must be in [0, 1]: pass softmax probabilities, not "
            f"logits, losses or percentages, and score a model with NaN outputs as diverged"
        )
    return vector
