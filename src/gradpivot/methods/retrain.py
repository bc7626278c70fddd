"""Retrain: start over without the forgotten data. Exact, slow, and the reference for Δ.

Its fields are a recipe of ordinary training, so that original and reference are trained in one way.
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
"""Called after every step with whether it ends an epoch; gives columns for the history, the same ones each time."""


@dataclass(frozen=True, kw_only=True)
class Retrain(Descent):
    """Trains a newly initialised model on the retain set with the original recipe.

    Set the fields to the recipe the original model was trained with. The new initialisation comes from the
    ``factory`` given to :func:`gradpivot.unlearn`, or from re-initialising every module that can be.

    Attributes:
        nesterov: Nesterov's form of SGD's momentum.
        label_smoothing: Share of each target that is spread over all classes (Szegedy et al., 2016).
        ema: Decay of an exponential moving average of the weights, which the model has in the end; 0 for none. In the
            first steps it is (1 + n) / (10 + n) where that is less. BatchNorm's statistics are not averaged:
            recalibrate them.
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
    """A recipe of few epochs: one cycle of a large learning rate (Smith & Topin, 2018; Page, 2018)."""

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
        self._check("label_smoothing", least=0, below=1)
        self._check("ema", least=0, below=1)
        if self.iterations is not None:
            raise GradPivotError(
                f"{self.title}: iterations is {self.iterations}; training goes by epochs, leave it open"
            )
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise GradPivotError(
                f"{self.title}: nesterov is a form of SGD's momentum, and the optimizer is {self.optimizer} with "
                f"momentum {self.momentum:g}; use sgd with momentum, or no nesterov"
            )

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """New weights, then ordinary training on D_r."""
        loop.initialise(model)
        self.fit(model, task, split.train, split.retain_indices, loop)

    def fit(
        self, model: nn.Module, task: Task, dataset: Any, indices: np.ndarray, loop: Loop, watch: Watch | None = None
    ) -> None:
        """Ordinary training on some samples: D_r here, all of the data for an original model."""
        loss_of = self._loss(task)
        for batch in loop.batches(model, task, dataset, indices, self):
            gradients = loop.gradients(retain=partial(loss_of, model, batch.data))
            loop.step(gradients, Weights(0.0, 1.0), measured=False)
            if watch:
                loop.record(**watch(batch.ends_epoch))

    def _loss(self, task: Task) -> Callable[[nn.Module, Any], Tensor]:
        if self.label_smoothing == 0:
            return task.retain_loss
        classification = Classification.required(task, "label smoothing")
        return partial(classification.smoothed_loss, smoothing=self.label_smoothing)
