"""Relative similarity: are the outputs on D_f nearer to those of the retrained or of the original model?

The test of Bounliphone et al. (2016), "A Test of Relative Similarity For Model Selection in Generative Models", with
a jackknife variance, because the three models answer the same records. A two-sample test fails even exact retraining:
two retrained models differ too.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gradpivot.auditing.attack import Attack, Measurement, NotTestedError
from gradpivot.evaluate import fixed_subset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradpivot.auditing.subject import Outputs, Subject

__all__ = ["THREE_SAMPLE", "Similarity", "relative_similarity"]

_RECORDS = 1000
_KERNEL_RESOLUTION = 1e-6
"""Differences of mean kernel values (in [0, 1]) far below this are rounding."""


class Similarity(NamedTuple):
    """Result of the test.

    Attributes:
        difference: MMD²(model, retrained) − MMD²(model, original); negative if the model is nearer to retraining.
        statistic: The difference in standard errors.
        p_value: Of the hypothesis that the model is at least as near to the retrained as to the original one.
    """

    difference: float
    statistic: float
    p_value: float


def relative_similarity(
    model: NDArray[np.float64], retrained: NDArray[np.float64], original: NDArray[np.float64]
) -> Similarity:
    """Compare the distributions of outputs of three models on the same n records (n×k each) by kernel distances.

    Gaussian kernel with the median distance as its bandwidth. The standard error is regularised, so identical outputs
    give a statistic of 0.
    """
    n = len(model)
    blocks = _kernel(np.concatenate([model, retrained, original])).reshape(3, n, 3, n)
    xy, xz = blocks[0, :, 1], blocks[0, :, 2]
    pairs = blocks[1, :, 1] - xy - xy.T - blocks[2, :, 2] + xz + xz.T
    np.fill_diagonal(pairs, 0.0)
    rows = pairs.sum(axis=1) / (n - 1)
    difference = float(rows.mean())
    variance = 4 * (n - 1) / (n * (n - 2) ** 2) * float(((rows - difference) ** 2).sum())
    statistic = difference / math.sqrt(variance + _KERNEL_RESOLUTION**2)
    return Similarity(difference, statistic, NormalDist().cdf(-statistic))


def _kernel(points: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = (points**2).sum(axis=1)
    squared = np.maximum(norms[:, None] + norms - 2 * points @ points.T, 0.0)
    apart = squared[squared > 1e-12]
    bandwidth = float(np.median(apart)) if len(apart) else 1.0
    kernel: NDArray[np.float64] = np.exp(-squared / (2 * bandwidth))
    return kernel


def _points(found: Outputs, chosen: np.ndarray) -> NDArray[np.float64]:
    """Square roots of probabilities, whose Euclidean distance is the Hellinger distance."""
    points: NDArray[np.float64] = np.exp(found.log_probabilities[chosen] / 2)
    return points


def _measure(subject: Subject) -> Measurement:
    control = subject.control("the three-sample test")
    if subject.original is None:
        raise NotTestedError("needs the original model; pass original=")
    chosen = fixed_subset(np.arange(len(subject.indices("forget"))), _RECORDS)
    if len(chosen) < 3:
        raise NotTestedError("needs at least 3 forgotten records")
    audited, retrained, original = (
        _points(subject.outputs(model, "forget"), chosen) for model in (subject.model, control, subject.original)
    )
    found = relative_similarity(audited, retrained, original)
    nearer = "retrained" if found.difference < 0 else "original"
    further = [_points(subject.outputs(model, "forget"), chosen) for model in subject.retrained[1:2]]
    return Measurement(
        value=found.statistic,
        n=len(chosen),
        control=relative_similarity(further[0], retrained, original).statistic if further else None,
        original=relative_similarity(original, retrained, original).statistic,
        note=f"nearer to the {nearer} model; p = {found.p_value:.2g} for being at least as near to the retrained one",
        details={"p_value": found.p_value, "difference": found.difference},
    )


THREE_SAMPLE = Attack(
    name="three_sample",
    title="Nearer to retrained or original",
    question="knowledge",
    meaning=(
        "Kernel distance of the outputs on the forgotten data to the retrained minus to the original model, in "
        "standard errors: negative is nearer to retraining."
    ),
    measure=_measure,
    level="standard",
    unit="",
    direction="higher",
    decides=False,
    threat="Has the outputs of all three models.",
)
