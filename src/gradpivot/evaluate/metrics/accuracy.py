"""RA, UA and TA: what is kept, what is forgotten, what is generalised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradpivot.evaluate.metrics.metric import Metric

if TYPE_CHECKING:
    from gradpivot.evaluate.classifiers.evaluation import SetPredictions

__all__ = ["RA", "TA", "UA"]


def _kept(retain: SetPredictions) -> float:
    return float(retain.correct.mean())


def _forgotten(forget: SetPredictions) -> float:
    return float(1 - forget.correct.mean())


def _generalised(test: SetPredictions) -> float:
    return float(test.correct.mean())


RA = Metric(
    name="ra", label="kept", meaning="Accuracy on the data to keep.",
    compute=_kept, ideal=1.0, share_of="retain", in_standings=True,
)  # fmt: skip
UA = Metric(
    name="ua", label="forgotten", meaning="One minus the accuracy on the data to forget.",
    compute=_forgotten, ideal=1.0, share_of="forget", in_standings=True,
)  # fmt: skip
TA = Metric(
    name="ta", label="on test data", meaning="Accuracy on {scope}.",
    compute=_generalised, share_of="test", in_standings=True,
)  # fmt: skip
