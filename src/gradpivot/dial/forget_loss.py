"""A forget loss that also tells how much of its batch is forgotten."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from torch import no_grad

from gradpivot.loop import has_batch_statistics, statistics_kept
from gradpivot.runtime import evaluating, rewinder

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.dial.goal import Goal

__all__ = ["ForgetLoss"]


class ForgetLoss:
    """L_f of a batch and its degree of forgetting, from the same forward pass where that can be.

    A batch of one class that BatchNorm normalises by itself looks like any other and says nothing about UA: in train
    mode the degree takes a pass of its own, with the running statistics. Where those are recomputed after the run
    (``recalibrate``), they follow the retain batches alone, as they will then.

    Args:
        goal: What counts as forgotten.
        model: The model in training.
        batch: Forget samples.
        batchnorm: The method's BatchNorm policy.
    """

    def __init__(self, goal: Goal, model: nn.Module, batch: Any, batchnorm: str) -> None:
        self._goal, self._model, self._batch = goal, model, batch
        self._recalibrates = batchnorm == "recalibrate"
        self.degree = 0.0
        """The mean over the batch, once the loss has been computed."""

    def __call__(self) -> Tensor:
        """The loss; sets :attr:`degree`."""
        if has_batch_statistics(self._model):
            self.degree = self._degree_alone()
            return self._loss_alone()
        loss, degree = self._goal.forgetting(self._model, self._batch)
        self.degree = float(degree.mean())
        return loss

    def recompute(self) -> Tensor:
        """The loss as it was computed before, draw by draw: another path might take other random numbers."""
        if has_batch_statistics(self._model):
            return self._loss_alone()
        return self._goal.forgetting(self._model, self._batch).loss

    def _loss_alone(self) -> Tensor:
        with statistics_kept(self._model) if self._recalibrates else nullcontext():
            return self._goal.task.forget_loss(self._model, self._batch, self._goal.objective)

    def _degree_alone(self) -> float:
        rewind = rewinder()
        with no_grad(), evaluating(self._model):
            degree = float(self._goal.degree(self._model, self._batch).mean())
        rewind()
        return degree
