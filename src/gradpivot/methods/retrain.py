"""Retrain: training from scratch without the forget set. Exact, slow, and the reference model for Δ.

The original model is trained with the same class, so that both follow the same recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gradpivot.errors import GradPivotError
from gradpivot.geometry import Weights
from gradpivot.methods.method import Descent
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["Retrain", "Watch"]

Watch = Callable[[bool], Mapping[str, float | None]]
"""Called after every step with whether it ends an epoch; returns columns for the history, always the same ones."""


@dataclass(frozen=True, kw_only=True)
class Retrain(Descent):
    """Training from scratch on the retain set: exact unlearning, the reference model.

    Set the fields to the recipe the original model was trained with. New weights come from the ``factory`` given to
    :func:`gradpivot.unlearn`, or from calling ``reset_parameters`` on every module that has it.

    Attributes:
        epochs: Passes over the training data.
        nesterov: Use Nesterov momentum.
        label_smoothing: Label-smoothing factor (Szegedy et al., 2016).
        ema: Decay of the exponential moving average of the weights; 0 disables it. Use it with batchnorm=recalibrate,
            because running statistics are not averaged.
    """

    name: ClassVar[str] = "retrain"
    title: ClassVar[str] = "Retrain"
    starts_over: ClassVar[bool] = True
    needs_forget: ClassVar[bool] = False
    uses_all_retain: ClassVar[bool] = True
    paper: ClassVar[Mapping[str, Any]] = {
        "lr": 0.1, "epochs": 200, "batch_size": 256, "weight_decay": 5e-4, "schedule": "cosine",
    }  # fmt: skip
    short: ClassVar[Mapping[str, Any]] = {
        "lr": 0.2, "epochs": 20, "batch_size": 128, "weight_decay": 5e-4, "schedule": "one_cycle", "nesterov": True,
        "label_smoothing": 0.1,
    }  # fmt: skip
    """A 20-epoch recipe with a one-cycle schedule (Smith & Topin, 2018; Page, 2018)."""

    lr: float = 0.05
    epochs: int = 30
    batch_size: int | None = 64
    weight_decay: float = 5e-4
    schedule: Literal["constant", "cosine", "one_cycle"] = "cosine"
    batchnorm: Literal["frozen", "train", "recalibrate"] = "train"
    max_norm: float | None = None
    nesterov: bool = False
    label_smoothing: float = 0.0
    ema: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("label_smoothing", ge=0, lt=1)
        self._check("ema", ge=0, lt=1)
        if self.iterations is not None:
            raise GradPivotError(
                f"{self.title}: iterations is {self.iterations}; training is measured in epochs, so omit it"
            )
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise GradPivotError(
                f"{self.title}: nesterov needs SGD with momentum, but the optimizer is {self.optimizer} with momentum "
                f"{self.momentum:g}; change these, or disable nesterov"
            )

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Re-initialise, then train on D_r."""
        loop.initialise(model)
        self.fit(model, task, split.train, split.retain_indices, loop)

    def fit(
        self, model: nn.Module, task: Task, dataset: Any, indices: np.ndarray, loop: Loop, watch: Watch | None = None
    ) -> None:
        """Train on a subset: D_r to retrain, all of the data for an original model."""
        loss_of = self._loss(task)
        for batch in loop.batches(model, task, dataset, indices, self):
            gradients = loop.gradients(retain=partial(loss_of, model, batch.data))
            loop.step(gradients, Weights(0.0, 1.0), measured=False)
            if watch:
                loop.record(**watch(batch.ends_epoch))

    def _loss(self, task: Task) -> Callable[[nn.Module, Any], Tensor]:
        if self.label_smoothing == 0:
            return task.retain_loss
        classification = Classification.require(task, "label smoothing")
        return partial(classification.smoothed_loss, smoothing=self.label_smoothing)
