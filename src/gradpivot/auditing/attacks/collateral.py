"""Collateral damage: what the model lost besides the forgotten data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gradpivot.auditing.attack import Attack, Measurement, NotTestedError
from gradpivot.auditing.statistics import clopper_pearson, paired_difference, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import nn

    from gradpivot.auditing.subject import Outputs, Part, Subject

__all__ = ["CALIBRATION_ERROR", "RETAIN_ACCURACY", "TEST_ACCURACY", "WORST_CLASS", "expected_calibration_error"]

_ERROR_RATE = 0.05
"""As in :func:`gradpivot.results.judge`."""
_BINS = 15
_CLASS_NOISE = 0.05
_SURE = 10
"""A drop counts as certain if it would be with this many times as many comparisons."""


class _Baseline(NamedTuple):
    """The model to compare with: retrained if there is one, else the original."""

    model: nn.Module | None
    is_original: bool

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the measurement that say what the control is."""
        if self.model is None:
            return {"note": "no retrained or original model to compare with"}
        return {"control_is": "original" if self.is_original else "retrained"}


def _baseline(subject: Subject) -> _Baseline:
    retrained = next(iter(subject.retrained), None)
    return _Baseline(subject.original if retrained is None else retrained, retrained is None)


def _accuracy(subject: Subject, part: Part) -> Measurement:
    baseline = _baseline(subject)
    correct = subject.outputs(subject.model, part).correct
    before = None if baseline.model is None else subject.outputs(baseline.model, part).correct
    difference, error = (None, None) if before is None else paired_difference(correct, before)
    return Measurement(
        value=float(correct.mean()),
        n=len(correct),
        interval=clopper_pearson(int(correct.sum()), len(correct)),
        control=None if before is None else float(before.mean()),
        original=_of_original(subject, part, lambda found: float(found.correct.mean())),
        difference=difference,
        error=error,
        noise=_noise(subject, part, lambda found: float(found.correct.mean())),
        **baseline.fields,
    )


def _of_original(subject: Subject, part: Part, value: Callable[[Outputs], float]) -> float | None:
    return None if subject.original is None else value(subject.outputs(subject.original, part))


def _noise(subject: Subject, part: Part, value: Callable[[Outputs], float]) -> float | None:
    values = [value(subject.outputs(model, part)) for model in subject.retrained]
    return spread(values) if values else None


class _Drop(NamedTuple):
    """Loss of accuracy on one class."""

    label: int
    n: int
    drop: float
    error: float


def _drops(found: Outputs, before: Outputs) -> list[_Drop]:
    rows = {int(label): found.labels == label for label in np.unique(found.labels)}
    return [
        _Drop(label, int(at.sum()), *paired_difference(before.correct[at], found.correct[at]))
        for label, at in rows.items()
    ]


def _decisive(drops: Sequence[_Drop], noise: float) -> _Drop:
    """The class and standard error on which the verdict may rest.

    A drop is evidence only with an error widened (Bonferroni) for the number of classes. The absence of a drop needs no
    widening: it is claimed only if every class excludes one (an intersection-union test), so the class that could have
    dropped most stands for all.
    """
    single, widened, sure = (
        NormalDist().inv_cdf(1 - _ERROR_RATE / count) for count in (1, len(drops), _SURE * len(drops))
    )
    surest = max(drops, key=lambda one: one.drop - sure * one.error)
    if surest.drop - sure * surest.error > noise:
        return surest._replace(error=surest.error * widened / single)
    worst = max(drops, key=lambda one: one.drop + single * one.error)
    if worst.drop - single * worst.error > noise:
        return worst._replace(error=worst.error * widened / single)
    return worst


def _worst_class(subject: Subject) -> Measurement:
    baseline = _baseline(subject)
    if baseline.model is None:
        raise NotTestedError("needs a retrained or the original model")
    found, before = (subject.outputs(model, "test") for model in (subject.model, baseline.model))
    spread = max(
        (one.drop for model in subject.retrained[1:] for one in _drops(subject.outputs(model, "test"), before)),
        default=None,
    )
    drops = _drops(found, before)
    worst = _decisive(drops, max(_CLASS_NOISE, spread or 0.0))
    return Measurement(
        value=worst.drop,
        n=worst.n,
        control=0.0,
        original=_of_original(subject, "test", lambda found: max(one.drop for one in _drops(found, before))),
        difference=worst.drop,
        error=worst.error,
        noise=spread,
        note=f"class {worst.label} of {len(drops)}",
        **baseline.fields,
        details={"drops": [{"class": one.label, "n": one.n, "drop": one.drop} for one in drops]},
    )


def expected_calibration_error(found: Outputs, bins: int = _BINS) -> float:
    """Mean |accuracy − confidence| over equal-width bins of the confidence, weighted by size (Guo et al. 2017)."""
    confidence: NDArray[np.float64] = np.exp(found.log_probabilities.max(axis=1))
    at = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(at, weights=found.correct - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidence))


def _calibration_error(subject: Subject) -> Measurement:
    baseline = _baseline(subject)
    value = expected_calibration_error(subject.outputs(subject.model, "test"))
    control = None if baseline.model is None else expected_calibration_error(subject.outputs(baseline.model, "test"))
    return Measurement(
        value=value,
        n=len(subject.indices("test")),
        control=control,
        original=_of_original(subject, "test", expected_calibration_error),
        difference=None if control is None else value - control,
        noise=_noise(subject, "test", expected_calibration_error),
        **baseline.fields,
    )


_THREAT = "Not an attack: what users of the model lose."

TEST_ACCURACY = Attack(
    name="test_accuracy",
    title="Test accuracy",
    question="collateral",
    meaning="Accuracy on test data of what was retained (TA).",
    measure=partial(_accuracy, part="test"),
    direction="lower",
    noise=0.01,
    margin=0.03,
    threat=_THREAT,
)

RETAIN_ACCURACY = Attack(
    name="retain_accuracy",
    title="Accuracy on retained data",
    question="collateral",
    meaning="Accuracy on retained training data (RA), on a random subset if there are many.",
    measure=partial(_accuracy, part="retain"),
    direction="lower",
    noise=0.02,
    margin=0.03,
    threat=_THREAT,
)

WORST_CLASS = Attack(
    name="worst_class",
    title="Most harmed class",
    question="collateral",
    meaning="Largest loss of test accuracy on a retained class.",
    measure=_worst_class,
    direction="higher",
    noise=_CLASS_NOISE,
    margin=0.15,
    threat=_THREAT,
)

CALIBRATION_ERROR = Attack(
    name="calibration_error",
    title="Calibration error",
    question="collateral",
    meaning=f"Expected calibration error on test data ({_BINS} bins): how far confidence is from accuracy.",
    measure=_calibration_error,
    direction="higher",
    decides=False,
    threat=_THREAT,
)
