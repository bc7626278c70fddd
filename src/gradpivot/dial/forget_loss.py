"""A forget loss that also measures the degree of forgetting of its batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import no_grad

from gradpivot.loop import frozen_statistics, has_batch_statistics, preserved_statistics, running_statistics
from gradpivot.runtime import evaluating, rewinder

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.dial.goal import Goal

__all__ = ["ForgetLoss"]


class ForgetLoss:
    """L_f of a batch and its degree of forgetting, from one forward pass where possible.

    BatchNorm in train mode normalises a batch of a single class by its own statistics, so its predictions say nothing
    about UA. With ``train`` the degree needs a second pass, in eval mode. With ``recalibrate`` forget samples are
    normalised by the running statistics, which only retain batches update, as they are at the end of the run.

    Args:
        goal: What counts as forgotten.
        model: The model in training.
        batch: Forget samples.
        batchnorm: The BatchNorm policy.
    """

    def __init__(self, goal: Goal, model: nn.Module, batch: Any, batchnorm: str) -> None:
        self._goal, self._model, self._batch = goal, model, batch
        self._recalibrates = batchnorm == "recalibrate"
        self._used: list[Tensor] = []
        self.degree = 0.0
        """Mean degree of the batch; set by calling the loss."""

    def __call__(self) -> Tensor:
        """Compute the loss and set :attr:`degree`."""
        if self._recalibrates:
            self._used = [statistic.clone() for statistic in running_statistics(self._model)]
        with self._statistics():
            if has_batch_statistics(self._model):
                self.degree = self._degree_alone()
                return self._loss_alone()
            loss, degree = self._goal.forgetting(self._model, self._batch)
            self.degree = float(degree.mean())
            return loss

    def recompute(self) -> Tensor:
        """Compute the loss again, on the same code path and so with the same random numbers.

        With ``recalibrate`` also with the same statistics: the change is then the step's, not the retain batch's.
        """
        if self._recalibrates:
            for statistic, used in zip(running_statistics(self._model), self._used, strict=True):
                statistic.copy_(used)
        with self._statistics():
            if has_batch_statistics(self._model):
                return self._loss_alone()
            return self._goal.forgetting(self._model, self._batch).loss

    @contextmanager
    def _statistics(self) -> Iterator[None]:
        if not self._recalibrates:
            yield
            return
        # InstanceNorm normalises each sample by itself, so only its running statistics are kept.
        with frozen_statistics(self._model), preserved_statistics(self._model):
            yield

    def _loss_alone(self) -> Tensor:
        return self._goal.task.forget_loss(self._model, self._batch, self._goal.objective)

    def _degree_alone(self) -> float:
        rewind = rewinder()
        with no_grad(), evaluating(self._model):
            degree = float(self._goal.degree(self._model, self._batch).mean())
        rewind()
        return degree
