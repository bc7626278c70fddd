"""Recovery: how much of the forgotten data a model recognises after fine-tuning on retained data only.

The audit's attacks and the metric RECOVERY share this treatment.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from gradpivot.data import Loader
from gradpivot.errors import GradPivotError
from gradpivot.evaluate.classifiers.evaluation import SetPredictions
from gradpivot.evaluate.relearning import repeated_batches, sgd_steps
from gradpivot.loop import apply_policy, has_batchnorm
from gradpivot.runtime import derive, isolated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradpivot.data import ForgetSplit
    from gradpivot.tasks import Task

__all__ = ["RECOVERY_STEPS", "recovered_correctness", "recovery_batches", "recovery_ways"]

RECOVERY_STEPS = 100
"""Steps of SGD (learning rate 0.01, momentum 0.9)."""
_SIZE = 64


def recovery_ways(model: nn.Module) -> tuple[str, ...]:
    """BatchNorm policies under which a user may fine-tune the model; one if it has no BatchNorm."""
    return ("train", "frozen") if has_batchnorm(model) else ("train",)


def recovery_batches(split: ForgetSplit, seed: int = 0) -> list[np.ndarray]:
    """Batches of 64 retained samples, one per step.

    Raises:
        GradPivotError: If there are fewer than two retained samples, which BatchNorm cannot normalise.
    """
    if len(split.retain_indices) < 2:
        raise GradPivotError("fine-tuning on retained data needs at least two retained samples")
    return repeated_batches(split.retain_indices, _SIZE, RECOVERY_STEPS, seed, "finetune")


def recovered_correctness(
    model: nn.Module,
    split: ForgetSplit,
    task: Task,
    records: np.ndarray,
    predict: Callable[[nn.Module, Any, np.ndarray], SetPredictions],
    *,
    workers: int = 0,
) -> NDArray[np.float64]:
    """Whether a copy of the model recognises each record after the fine-tuning.

    A model with BatchNorm is fine-tuned twice, with its statistics in train mode and frozen; the copy that recognises
    more counts.

    Args:
        model: Not modified.
        split: The data.
        task: Runs the model on a batch.
        records: Training indices of forgotten samples.
        predict: Predictions of a model in eval mode on samples of a dataset.
        workers: Data-loading processes.

    Raises:
        NonFiniteError: If a loss or an output is not finite.
    """
    order, found = recovery_batches(split), []
    for policy in recovery_ways(model):
        pupil = copy.deepcopy(model)
        apply_policy(pupil, policy)
        loader = Loader(split.train, next(pupil.parameters()).device, seed=0, workers=workers)
        with isolated(derive(0, "recovery")):
            for _ in sgd_steps(pupil, task, loader.batches(order, epoch=-1)):
                pass
        found.append(predict(pupil.eval(), split.train, records).correct.astype(np.float64))
    return max(found, key=lambda correct: float(correct.mean()))
