"""A forget loss that also measures the degree of forgetting of its batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from torch import no_grad

from gradpivot.loop import frozen_statistics, has_batch_statistics, has_batchnorm, preserved_statistics, statistics_of
from gradpivot.runtime import evaluating, rewinder

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.dial.goal import Goal

__all__ = ["ForgetLoss"]


class ForgetLoss:
    """L_f of a batch and its degree of forgetting, from one forward pass where possible.

    BatchNorm in train mode normalises a batch of a single class by its own statistics, so its predictions say nothing
    about UA. With ``train`` the degree needs a second pass, in eval mode. With ``recalibrate`` forget samples are
    normalised by the statistics of the step's retain batch, as by those of the retained data at the end of the run.

    Args:
        goal: What counts as forgotten.
        model: The model in training.
        batch: Forget samples.
        batchnorm: The BatchNorm policy.
        retain: Retain samples; without them ``recalibrate`` uses the running statistics.
    """

    def __init__(self, goal: Goal, model: nn.Module, batch: Any, batchnorm: str, retain: Any = None) -> None:
        self._goal, self._model, self._batch, self._retain = goal, model, batch, retain
        self._recalibrates = batchnorm == "recalibrate" and has_batchnorm(model)
        self.degree = 0.0
        """Mean degree of the batch; set by calling the loss."""

    def __call__(self) -> Tensor:
        """Compute the loss and set :attr:`degree`."""
        with self._statistics():
            if self._is_alone:
                self.degree = self._degree_alone()
                return self._loss_alone()
            loss, degree = self._goal.forgetting(self._model, self._batch)
            self.degree = float(degree.mean())
            return loss

    def recompute(self) -> Tensor:
        """Compute the loss again, on the same code path and so with the same random numbers."""
        with self._statistics():
            if self._is_alone:
                return self._loss_alone()
            return self._goal.forgetting(self._model, self._batch).loss

    @contextmanager
    def _statistics(self) -> Iterator[None]:
        if not self._recalibrates:
            yield
            return
        # InstanceNorm normalises each sample by itself, so only its running statistics are kept.
        with self._of_retained_data(), preserved_statistics(self._model):
            yield

    def _of_retained_data(self) -> AbstractContextManager[None]:
        if self._retain is None:
            return frozen_statistics(self._model)
        return statistics_of(self._model, lambda: self._goal.task.retain_loss(self._model, self._retain))

    @property
    def _is_alone(self) -> bool:
        """Whether the batch is normalised by its own statistics."""
        return not self._recalibrates and has_batch_statistics(self._model)

    def _loss_alone(self) -> Tensor:
        return self._goal.task.forget_loss(self._model, self._batch, self._goal.objective)

    def _degree_alone(self) -> float:
        rewind = rewinder()
        with no_grad(), evaluating(self._model):
            degree = float(self._goal.degree(self._model, self._batch).mean())
        rewind()
        return degree
