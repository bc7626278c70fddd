"""A forget loss that also measures the degree of forgetting of its batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

from torch import no_grad

from gradpivot.loop import frozen_statistics, has_batch_statistics, has_batchnorm, preserved_statistics, statistics_of
from gradpivot.runtime import evaluating, rewinder

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.dial.goal import Goal

__all__ = ["ForgetLoss", "Normalisation", "normalisation_of"]

Normalisation = Literal["by itself", "by retained data", "by constants"]


def normalisation_of(model: nn.Module, batchnorm: str) -> Normalisation:
    """How BatchNorm treats a forget batch, once the policy ``batchnorm`` is applied to the model."""
    if batchnorm == "recalibrate" and has_batchnorm(model):
        return "by retained data"
    return "by itself" if has_batch_statistics(model) else "by constants"


class ForgetLoss:
    """L_f of a batch and its degree of forgetting, from one forward pass where possible.

    BatchNorm in train mode normalises a batch of a single class by its own statistics, so its predictions say nothing
    about UA. With ``train`` the degree needs a second pass, in eval mode. With ``recalibrate`` forget samples are
    normalised by the statistics of the step's retain batch, as by those of the retained data at the end of the run.

    Args:
        goal: What counts as forgotten.
        model: The model in training.
        batch: Forget samples.
        normalisation: How BatchNorm treats the batch.
        retain: Retain samples; without them ``recalibrate`` uses the running statistics.
    """

    def __init__(
        self, goal: Goal, model: nn.Module, batch: Any, normalisation: Normalisation, retain: Any = None
    ) -> None:
        self._goal, self._model, self._batch, self._retain = goal, model, batch, retain
        self._normalisation = normalisation
        self.degree = 0.0
        """Mean degree of the batch; set by calling the loss."""

    def __call__(self) -> Tensor:
        """Compute the loss and set :attr:`degree`."""
        with self._statistics():
            if self._normalisation == "by itself":
                self.degree = self._degree_alone()
                return self._loss_alone()
            loss, degree = self._goal.forgetting(self._model, self._batch)
            self.degree = float(degree.mean())
            return loss

    def recompute(self) -> Tensor:
        """Compute the loss again, on the same code path and so with the same random numbers."""
        with self._statistics():
            if self._normalisation == "by itself":
                return self._loss_alone()
            return self._goal.forgetting(self._model, self._batch).loss

    def _statistics(self) -> AbstractContextManager[None]:
        return self._recalibrated() if self._normalisation == "by retained data" else nullcontext()

    @contextmanager
    def _recalibrated(self) -> Iterator[None]:
        # InstanceNorm normalises each sample by itself, so only its running statistics are kept.
        with self._of_retained_data(), preserved_statistics(self._model):
            yield

    def _of_retained_data(self) -> AbstractContextManager[None]:
        if self._retain is None:
            return frozen_statistics(self._model)
        return statistics_of(self._model, lambda: self._goal.task.retain_loss(self._model, self._retain))

    def _loss_alone(self) -> Tensor:
        return self._goal.task.forget_loss(self._model, self._batch, self._goal.objective)

    def _degree_alone(self) -> float:
        rewind = rewinder()
        with no_grad(), evaluating(self._model):
            degree = float(self._goal.degree(self._model, self._batch).mean())
        rewind()
        return degree
