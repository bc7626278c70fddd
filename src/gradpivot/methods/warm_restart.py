"""Warm restart: shrink and perturb the weights, then train on the retain set (Ash & Adams, NeurIPS 2020)."""

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

__all__ = ["WarmRestart"]


@dataclass(frozen=True, kw_only=True)
class WarmRestart(RetainDescent):
    """Shrinking and perturbing the weights, then training on the retain set (Ash & Adams, 2020).

    θ ← s·θ + (1 − s)·θ_new with θ_new newly initialised. The forget set is not used.

    Attributes:
        shrink: s, the fraction of the original weights that is kept: 1 is fine-tuning, 0 is retraining.
    """

    name: ClassVar[str] = "warm_restart"
    title: ClassVar[str] = "Warm restart"
    knob: ClassVar[str | None] = "shrink"
    paper: ClassVar[Mapping[str, Any]] = {}

    shrink: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("shrink", ge=0, le=1)

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Shrink and perturb, then train on D_r."""
        loop.shrink_and_perturb(model, self.shrink)
        self.fit(model, task, split, loop)
