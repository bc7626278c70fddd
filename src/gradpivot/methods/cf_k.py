"""CF-k: catastrophic forgetting in the last k layers (Goel et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gradpivot.methods.parts.retraining import LastLayers

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["CFk"]


@dataclass(frozen=True, kw_only=True)
class CFk(LastLayers):
    """Fine-tuning of the last k layers on the retain set (Goel et al., 2022)."""

    name: ClassVar[str] = "cf_k"
    title: ClassVar[str] = "CF-k"

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Train the last k layers on D_r."""
        self.fit_layers(model, task, split, loop, self.last_layers(model, task, split, loop))
