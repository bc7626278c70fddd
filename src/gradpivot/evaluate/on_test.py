"""Accuracy of a classifier, or loss of a generator, on test data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from gradpivot.data import Loader, cut
from gradpivot.errors import NonFiniteError
from gradpivot.evaluate.classifiers.evaluation import fixed_subset, predictions
from gradpivot.runtime import derive, evaluating, isolated

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.tasks import Task

__all__ = ["TEST_SAMPLES", "HeldOutScore", "accuracy_on_test", "loss_on_test", "mean_loss", "score_on_test"]

TEST_SAMPLES = 1024
"""Test samples for a generator's loss: enough to see whether it learns, and quick."""


class HeldOutScore(NamedTuple):
    """Test accuracy of a model that predicts labels, else test loss."""

    accuracy: float | None = None
    loss: float | None = None


def score_on_test(
    model: nn.Module, split: ForgetSplit, task: Task, workers: int = 0, *, final: bool = True
) -> HeldOutScore:
    """Test accuracy or loss. A generator is scored only if ``final``.

    Raises:
        NonFiniteError: If outputs or losses are not finite.
    """
    if task.predicts:
        return HeldOutScore(accuracy=accuracy_on_test(model, split, task, workers))
    return HeldOutScore(loss=loss_on_test(model, split, task, workers)) if final else HeldOutScore()


def accuracy_on_test(model: nn.Module, split: ForgetSplit, task: Task, workers: int = 0) -> float:
    """Accuracy on the whole test set, in eval mode and the model's own dtype."""
    with evaluating(model):
        everything = np.arange(len(split.test))
        return float(predictions(model, split.test, everything, task, workers=workers).correct.mean())


def loss_on_test(model: nn.Module, split: ForgetSplit, task: Task, workers: int = 0) -> float:
    """Mean loss on a fixed subset of the test set; see :func:`mean_loss`."""
    part = fixed_subset(np.arange(len(split.test)), TEST_SAMPLES)
    return mean_loss(model, split.test, part, task, workers)


@torch.no_grad()
def mean_loss(model: nn.Module, dataset: Any, indices: np.ndarray, task: Task, workers: int = 0) -> float:
    """Mean training loss on the samples at ``indices``, in eval mode and with the same random numbers for every model.

    Raises:
        NonFiniteError: If the mean is NaN or infinite.
    """
    order = cut(indices, 64)
    loader = Loader(dataset, next(model.parameters()).device, seed=0, workers=workers)
    with evaluating(model), isolated(derive(0, "test loss")):
        losses = [float(task.retain_loss(model, batch)) for batch in loader.batches(order, epoch=-1)]
    mean = float(np.average(losses, weights=[len(batch) for batch in order]))
    if not math.isfinite(mean):
        raise NonFiniteError(f"the mean loss is {mean}")
    return mean
