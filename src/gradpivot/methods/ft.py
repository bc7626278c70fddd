"""FT: fine-tuning on the retain set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.methods.parts.retraining import RetainDescent

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["FT"]


@dataclass(frozen=True, kw_only=True)
class FT(RetainDescent):
    """Fine-tuning on the retain set; what the forget set taught may fade."""

    name: ClassVar[str] = "ft"
    title: ClassVar[str] = "FT"
    knob: ClassVar[str | None] = "lr"
    paper: ClassVar[Mapping[str, Any]] = {}

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Train on D_r."""
        self.fit(model, task, split, loop)
