"""Whose BatchNorm statistics a run uses: the original's, or those of the retained data alone.

A retrained model has the latter. Under the original's, a class can be forgotten by a small move that fine-tuning
undoes; under those of the retained data it stays forgotten (docs/results/depth.md).
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch

from gradpivot.data import shuffled
from gradpivot.dial.settings import DialSettings
from gradpivot.loop import has_batchnorm, restored_statistics
from gradpivot.runtime import derive, isolated

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import DescentRecipe, Loop
    from gradpivot.tasks import Task

__all__ = ["can_recalibrate"]


def can_recalibrate(model: nn.Module, task: Task, split: ForgetSplit, loop: Loop, recipe: DescentRecipe) -> bool:
    """Whether the statistics of the retained data alone keep the original's retain loss within the budget.

    Where they do not, a short run would have to repair more than it may break; it keeps the original's statistics, and
    a note says so.

    Args:
        model: The original model; unchanged.
        task: Runs the model on a batch.
        split: The data to forget and to retain.
        loop: The run.
        recipe: Settings with ``batchnorm="recalibrate"``.
    """
    settings = DialSettings()
    if not has_batchnorm(model):
        return True
    chosen = shuffled(split.retain_indices, loop.seed, "landing")[: settings.search_samples]
    measure = partial(_rise, model, task, split, loop, recipe, chosen, settings)
    rise = loop.replicas.from_first(measure) / task.loss_unit
    if rise <= settings.retain_budget:
        return True
    loop.note(
        f"BatchNorm keeps the original's statistics, because those of the retained data alone raise the retain loss by "
        f"{rise:.2f} nats; fine-tuning may bring the class back"
    )
    return False


def _rise(
    model: nn.Module,
    task: Task,
    split: ForgetSplit,
    loop: Loop,
    recipe: DescentRecipe,
    chosen: np.ndarray,
    settings: DialSettings,
) -> float:
    """Rise of L_r by new statistics; infinite if not finite."""

    @torch.no_grad()
    def retain_loss() -> float:
        with isolated(derive(loop.seed, "landing")):
            batches = loop.eval_batches(model, split.train, chosen, settings.search_batch)
            return math.fsum(len(part) * task.retain_loss(model, batch).item() for part, batch in batches)

    with restored_statistics(model):
        before = retain_loss()
        loop.recalibrate(model, task, split, recipe)
        rise = (retain_loss() - before) / len(chosen)
    return rise if math.isfinite(rise) else math.inf
