"""Mean confidence on the forget set: how sure the model still is of what it was to forget."""

from __future__ import annotations

from typing import Any

from gradpivot.evaluate import Metric


def mean_confidence(forget: Any) -> float:
    return float(forget.confidence.mean())


CONFIDENCE = Metric(
    name="confidence",
    symbol="Conf",
    meaning="Mean confidence of the true label on the data to forget.",
    direction="lower",
    compute=mean_confidence,
)
