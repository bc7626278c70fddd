"""UNCERTAINTY: the degree of forgetting of records, which γ sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradpivot.evaluate.metrics.metric import Metric, WithIdeal

if TYPE_CHECKING:
    from gradpivot.evaluate.classifiers.evaluation import SetPredictions

__all__ = ["UNCERTAINTY"]


def _uncertainty(forget: SetPredictions, unseen: SetPredictions) -> WithIdeal:
    return WithIdeal(float(1 - forget.confidence.mean()), float(1 - unseen.confidence.mean()))


UNCERTAINTY = Metric(
    name="uncertainty", symbol="Uncertainty",
    meaning="Mean of 1 − p(true label) on the forget set. Ideal for records: the same on comparable unseen data.",
    compute=_uncertainty, against="held-out data", on_request=True, headline="records",
)  # fmt: skip
