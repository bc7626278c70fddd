"""EU-k: exact unlearning of the last k layers (Goel et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gradpivot.methods.parts.retraining import LastLayers, frozen_weights_kept

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["EUk"]


@dataclass(frozen=True, kw_only=True)
class EUk(LastLayers):
    """Re-initialisation of the last k layers and training on the retain set (Goel et al., 2022)."""

    name: ClassVar[str] = "eu_k"
    title: ClassVar[str] = "EU-k"

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Re-initialise the last k layers, then train them on D_r."""
        modules = self.last_layers(model, task, split, loop)
        with frozen_weights_kept(model):
            loop.initialise(model, only=modules)
        self.fit_layers(model, task, split, loop, modules)
