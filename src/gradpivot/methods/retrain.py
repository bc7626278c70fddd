"""Retrain: start over without the forgotten data. Exact, slow, and the reference for Δ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gradpivot.geometry.weighting import Weights
from gradpivot.methods.method import Descent

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from gradpivot.data.split import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks.task import Task

__all__ = ["Retrain"]


@dataclass(frozen=True, kw_only=True)
class Retrain(Descent):
    """Trains a newly initialised model on the retain set with the original recipe.

    Set the fields to the recipe the original model was trained with. The new initialisation comes from the
    ``factory`` given to :func:`gradpivot.unlearn`, or from re-initialising every module that can be.
    """

    name: ClassVar[str] = "retrain"
    title: ClassVar[str] = "Retrain"
    starts_over: ClassVar[bool] = True
    needs_forget: ClassVar[bool] = False
    uses_all_retain: ClassVar[bool] = True
    paper: ClassVar[Mapping[str, Any]] = {
        "lr": 0.1, "epochs": 200, "batch_size": 256, "weight_decay": 5e-4, "schedule": "cosine",
    }  # fmt: skip

    lr: float = 0.05
    epochs: int = 30
    batch_size: int | None = 64
    weight_decay: float = 5e-4
    schedule: Literal["constant", "cosine"] = "cosine"
    batchnorm: Literal["frozen", "train", "recalibrate"] = "train"
    max_norm: float | None = None

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """New weights, then ordinary training on D_r."""
        loop.initialise(model)
        self.fit(model, task, split.train, split.retain_indices, loop)

    def fit(self, model: nn.Module, task: Task, dataset: Any, indices: np.ndarray, loop: Loop) -> None:
        """Ordinary training on some samples: D_r here, all of the data for an original model."""
        for batch in loop.batches(model, task, dataset, indices, self):
            gradients = loop.gradients(retain=partial(task.retain_loss, model, batch.data))
            loop.step(gradients, Weights(0.0, 1.0))
