"""How good a trained model is: accuracy, or a generator's loss, on test data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

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

__all__ = ["accuracy_on_test", "loss_on_test"]

_TEST_SCORED = 1024
"""Test samples on which a generator's loss is taken: enough to see that it learns, and soon done."""


def accuracy_on_test(model: nn.Module, split: ForgetSplit, task: Task, workers: int = 0) -> float:
    """The share of all test samples that ``model`` predicts right, in eval mode and in its own number format."""
    with evaluating(model):
        everything = np.arange(len(split.test))
        return float(predictions(model, split.test, everything, task, workers=workers).correct.mean())


@torch.no_grad()
def loss_on_test(model: nn.Module, split: ForgetSplit, task: Task, workers: int = 0) -> float:
    """The mean loss on a fixed part of the test set in eval mode, with the same random numbers for every model.

    Raises:
        NonFiniteError: if it is NaN or infinite.
    """
    order = cut(scored_part(np.arange(len(split.test)), _TEST_SCORED), 64)
    loader = Loader(split.test, next(model.parameters()).device, seed=0, workers=workers)
    with evaluating(model), isolated(derive(0, "test loss")):
        losses = [float(task.retain_loss(model, batch)) for batch in loader.batches(order, epoch=-1)]
    mean = float(np.average(losses, weights=[len(batch) for batch in order]))
    if not math.isfinite(mean):
        raise NonFiniteError(f"the loss on the test set is {mean}")
    return mean
