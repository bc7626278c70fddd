"""RELEARN: how fast forgotten knowledge returns."""

from __future__ import annotations

from typing import Any

from gradpivot.evaluate.metrics.metric import Metric

__all__ = ["RELEARN"]


def _relearned(relearned: Any) -> float:
    return float(relearned.mean())


RELEARN = Metric(
    name="relearn", direction="lower",
    meaning="Accuracy on the forget set while a copy relearns from 5 forgotten samples per class, averaged over 30 "
    "steps and measured on the other forgotten samples.",
    compute=_relearned, on_request=True,
)  # fmt: skip
