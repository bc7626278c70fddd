"""RA, UA and TA: accuracy on the retain, forget and test sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradpivot.evaluate.metrics.metric import Metric

if TYPE_CHECKING:
    from gradpivot.evaluate.classifiers.evaluation import SetPredictions

__all__ = ["RA", "TA", "UA"]


def _retain_accuracy(retain: SetPredictions) -> float:
    return float(retain.correct.mean())


def _forget_error(forget: SetPredictions) -> float:
    return float(1 - forget.correct.mean())


def _test_accuracy(test: SetPredictions) -> float:
    return float(test.correct.mean())


RA = Metric(
    name="ra", label="kept", meaning="Accuracy on the data to keep.",
    compute=_retain_accuracy, ideal=1.0, share_of="retain", in_standings=True,
)  # fmt: skip
UA = Metric(
    name="ua", label="forgotten", meaning="One minus the accuracy on the data to forget.",
    compute=_forget_error, ideal=1.0, share_of="forget", in_standings=True,
)  # fmt: skip
TA = Metric(
    name="ta", label="on test data", meaning="Accuracy on {scope}.",
    compute=_test_accuracy, share_of="test", in_standings=True,
)  # fmt: skip
