"""A metric: mean confidence in the true label on the forget set."""

from __future__ import annotations

from typing import Any

from gradpivot.evaluate import Metric


def mean_confidence(forget: Any) -> float:
    return float(forget.confidence.mean())


CONFIDENCE = Metric(
    name="confidence",
    symbol="Conf",
    meaning="Mean confidence in the true label on the forget set.",
    direction="lower",
    compute=mean_confidence,
)
