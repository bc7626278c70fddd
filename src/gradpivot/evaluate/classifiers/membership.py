"""Membership inference: does the forget set look like data that the model never saw?

An attacker sees the confidence p(true label | x) of every sample, learns to tell members (retain
samples) from non-members (test samples), and judges the forget samples:

    MIA = |{x in forget : judged non-member}| / |forget|.

Two attackers are here, and a report must always say which one it used.

- ``svc``, the paper's: ``SVC(C=3, gamma="auto", kernel="rbf")`` on the one confidence. It is what
  Jia et al. 2023 ("Model Sparsity Can Simplify Machine Unlearning") and Fan et al. 2024 ("SalUn")
  use. It need not be monotone, and where members and non-members look alike it is ill-posed: it may
  call a confidence of 0 "member", and another draw of members turns its verdict round. So it counts
  as *undetermined* when its own training accuracy is below ``DETERMINED``.
- ``threshold``, the clean one: the single cut with the best balanced accuracy, with "low confidence
  = non-member" built in. It is monotone and exact, and takes O(n log n).

All shares and accuracies are fractions in [0, 1].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.classifiers.svc import fit_all, fit_merged

__all__ = ["DETERMINED", "SvcVerdict", "ThresholdVerdict", "attack_auc", "svc_attack", "threshold_attack"]

DETERMINED = 0.55
"""Least training accuracy at which the SVC's verdict means anything."""

_Vector = NDArray[np.float64]


class SvcVerdict(NamedTuple):
    """What the SVC says: ``share`` of forget judged non-member, and its training ``accuracy``."""

    share: float
    accuracy: float

    @property
    def determined(self) -> bool:
        """Whether the SVC tells members from non-members well enough to be believed."""
        return self.accuracy >= DETERMINED


class ThresholdVerdict(NamedTuple):
    """What the cut says: ``share`` of forget below ``cut``, and the cut's balanced ``accuracy``."""

    share: float
    cut: float
    accuracy: float


def svc_attack(members: ArrayLike, nonmembers: ArrayLike, forget: ArrayLike, *, exact_below: int = 4000) -> SvcVerdict:
    """Judge forget samples by ``SVC(C=3, gamma="auto", kernel="rbf")``, the attack of the papers.

    With y = +1 for members and -1 for non-members, and phi(x) . phi(z) = exp(-(x - z)^2), it is

        min  1/2 |w|^2 + C sum_i max(0, 1 - y_i (w . phi(x_i) + b)),

    and a sample is judged non-member where w . phi(x) + b is not positive.

    With fewer than ``exact_below`` training points (n = members + non-members) this is
    scikit-learn's SVC on them all, in O(n^2). From there on, neighbouring points of a class are
    merged into at most 2 · 512 cells, and the same SVC is fitted to the cells' means, with their
    counts as sample weights. For *equal* points that is the same program: multipliers in [0, C]
    that share their kernel row add up to one in [0, C · count]. For near ones it is off by the
    square of their distance, except where the margin y (w . phi(x) + b) = 1 runs through a cell.
    Those few cells are taken apart, and the SVC is fitted once more. So the time is O(n log n) plus
    two fits of some 1,500 points. No point is left out, and nothing is random.

    Where the SVC is determined, the share then differs from that of the SVC on all points by less
    than 0.5 percentage points, and usually by nothing. Larger differences were seen only where the
    SVC on all points is off itself: where LIBSVM's stopping rule (``tol=1e-3``) leaves the boundary
    open over many forget samples, so that a smaller tolerance moves its share by as much, and where
    all training points lie within 1e-5 of each other, so that its verdict is rounding.

    Args:
        members: Confidences of retain samples.
        nonmembers: Confidences of test samples.
        forget: Confidences of the forget samples.
        exact_below: Number of training points from which on points are merged; 0 merges always.

    Returns:
        The share of forget judged non-member, and the SVC's accuracy on its training points.

    Raises:
        GradPivotError: A ValueError, if an array is empty, not 1-D, or holds no probabilities.

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
    """Judge forget samples by the best single cut: confidence < cut means non-member.

    The cut maximises the balanced accuracy

        1/2 (share of non-members below the cut + share of members not below it)

    over all cuts, in O(n log n). A cut lies half-way between neighbouring distinct values of
    members and non-members together. Of equally good cuts the lowest is taken, which judges the
    fewest samples non-member. The lowest of all is the lowest confidence known: only what lies
    below everything seen is judged non-member, at a balanced accuracy of 1/2. It is what remains
    where no cut beats chance: where all confidences are equal, where the two sets are equal, and
    where members are the *less* confident ones. A forget set whose confidence is gone is then
    still seen to be unlike any member.

    For given members and non-members the verdict is monotone: lower confidences of the forget
    samples never lower the share.

    Args:
        members: Confidences of retain samples.
        nonmembers: Confidences of test samples.
        forget: Confidences of the forget samples.

    Returns:
        The share of forget below the cut, the cut, and its balanced accuracy.

    Raises:
        GradPivotError: A ValueError, if an array is empty, not 1-D, or holds no probabilities.
    """
    known, unknown, asked = _checked(members, nonmembers, forget)
    values = np.unique(np.concatenate([known, unknown]))
    # Counts strictly below each value: what a cut just under that value judges non-member.
    found = np.searchsorted(np.sort(unknown), values)
    lost = np.searchsorted(np.sort(known), values)
    # Integers, so that equally good cuts compare equal; argmax takes the first, the lowest.
    gain = found * known.size - lost * unknown.size
    best = int(np.argmax(gain))
    cut = float(values[0]) if best == 0 else _between(values[best - 1], values[best])
    accuracy = 0.5 + int(gain[best]) / (2 * known.size * unknown.size)
    return ThresholdVerdict(float((asked < cut).mean()), cut, accuracy)


def attack_auc(forget: ArrayLike, unseen: ArrayLike) -> float:
    """How well forget samples can be told from never-seen data of the same kind by their confidence.

        AUC = P(c_forget > c_unseen) + 1/2 P(c_forget = c_unseen)

    over all pairs, the Mann-Whitney statistic, in O(n log n). At 1/2 no threshold tells the two apart; above it the
    forget samples are the more confident ones (still remembered), below it the less confident ones (forgotten so
    hard that it shows, the "Streisand effect"; Golatkar et al., 2020, arXiv:1911.04933).

    Args:
        forget: Confidences of the forget samples.
        unseen: Confidences of never-seen samples: of the forgotten classes for class-wise forgetting.

    Returns:
        The AUC with its direction, in [0, 1]; an attacker who may turn it round has max(AUC, 1 - AUC).

    Raises:
        GradPivotError: A ValueError, if an array is empty, not 1-D, or holds no probabilities.
    """
    asked, unknown = _confidences("forget", forget), np.sort(_confidences("unseen", unseen))
    below, not_above = (np.searchsorted(unknown, asked, side=side) for side in ("left", "right"))
    # Integers, so that two equal sets give 1/2 exactly.
    return float(int((below + not_above).sum()) / (2 * asked.size * unknown.size))


def _between(low: float, high: float) -> float:
    """Return the middle of two distinct floats, or ``high`` where none lies between them."""
    middle = low + (high - low) / 2
    return float(middle if middle > low else high)


def _checked(members: ArrayLike, nonmembers: ArrayLike, forget: ArrayLike) -> tuple[_Vector, _Vector, _Vector]:
    return (_confidences("members", members), _confidences("nonmembers", nonmembers), _confidences("forget", forget))


def _confidences(name: str, values: ArrayLike) -> _Vector:
    """Return ``values`` as a float64 vector of probabilities, or say what is wrong with them."""
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1:
        raise GradPivotError(
            f"{name} has shape {vector.shape}, must be 1-D: pass one true-label confidence per "
            f"sample, such as probabilities[range(n), labels]"
        )
    if vector.size == 0:
        raise GradPivotError(f"{name} is empty (0 samples): pass at least one confidence")
    wrong = np.flatnonzero(~((vector >= 0) & (vector <= 1)))
    if wrong.size:
        at = wrong[0]
        raise GradPivotError(
            f"{name}[{at}] is {vector[at]}, must be in [0, 1]: pass softmax probabilities, not "
            f"logits, losses or percentages, and score a model with NaN outputs as diverged"
        )
    return vector
