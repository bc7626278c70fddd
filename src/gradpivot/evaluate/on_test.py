"""How good a trained model is: accuracy, or a generator's loss, on test data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from gradpivot.data import Loader, cut
from gradpivot.errors import NonFiniteError
from gradpivot.evaluate.classifiers.evaluation import predictions, scored_part
from gradpivot.runtime import derive, evaluating, isolated

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.tasks import Task

__all__ = ["TEST_SAMPLES", "OnTest", "accuracy_on_test", "loss_on_test", "mean_loss", "score_on_test"]

TEST_SAMPLES = 1024
"""Samples on which a generator's loss is taken: enough to see that it learns, and soon done."""


class OnTest(NamedTuple):
    """How good a model is on test data: the accuracy of one that predicts, else the loss."""

    accuracy: float | None = None
    loss: float | None = None


def score_on_test(model: nn.Module, split: ForgetSplit, task: Task, workers: int = 0, *, final: bool = True) -> OnTest:
    """Accuracy or loss; unless it is the ``final`` word, of a generator nothing.

    Raises:
        NonFiniteError: if outputs or losses are not finite.
    """
    if task.predicts:
        return OnTest(accuracy=accuracy_on_test(model, split, task, workers))
    return OnTest(loss=loss_on_test(model, split, task, workers)) if final else OnTest()


def accuracy_on_test(model: nn.Module, split: ForgetSplit, task: Task, workers: int = 0) -> float:
    """The share of all test samples that ``model`` predicts right, in eval mode and in its own number format."""
    with evaluating(model):
        everything = np.arange(len(split.test))
        return float(predictions(model, split.test, everything, task, workers=workers).correct.mean())


def loss_on_test(model: nn.Module, split: ForgetSplit, task: Task, workers: int = 0) -> float:
    """The mean loss on a fixed part of the test set; see :func:`mean_loss`."""
    part = scored_part(np.arange(len(split.test)), TEST_SAMPLES)
    return mean_loss(model, split.test, part, task, workers)


@torch.no_grad()
def mean_loss(model: nn.Module, dataset: Any, indices: np.ndarray, task: Task, workers: int = 0) -> float:
    """The mean training loss on some samples in eval mode, with the same random numbers for every model.

    Raises:
        NonFiniteError: if it is NaN or infinite.
    """
    order = cut(indices, 64)
    loader = Loader(dataset, next(model.parameters()).device, seed=0, workers=workers)
    with evaluating(model), isolated(derive(0, "test loss")):
        losses = [float(task.retain_loss(model, batch)) for batch in loader.batches(order, epoch=-1)]
    mean = float(np.average(losses, weights=[len(batch) for batch in order]))
    if not math.isfinite(mean):
        raise NonFiniteError(f"the mean loss is {mean}")
    return mean
