"""RECOVERY: what fine-tuning on retained data brings back."""

from __future__ import annotations

from typing import Any

from gradpivot.evaluate.metrics.metric import Metric

__all__ = ["RECOVERY"]


def _recovered(recovered: Any) -> float:
    return float(recovered.mean())


RECOVERY = Metric(
    name="recovery", direction="lower",
    meaning="Accuracy on the forget set after a copy is fine-tuned for 100 steps on retained data only.",
    compute=_recovered, on_request=True,
)  # fmt: skip
