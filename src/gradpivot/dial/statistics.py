"""Choose the BatchNorm statistics of a run: the original's, or those of the retained data alone.

A retrained model has the latter. Under the original's, a class can be forgotten by a small move that fine-tuning
undoes (docs/results/depth.md).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from gradpivot.data import shuffled
from gradpivot.dial.settings import DialSettings
from gradpivot.loop import has_frozen_batchnorm, restored_statistics
from gradpivot.runtime import derive, isolated

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.dial.dial import Steerable
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["can_recalibrate"]


def can_recalibrate(model: nn.Module, task: Task, split: ForgetSplit, loop: Loop, method: Steerable) -> bool:
    """Whether to forget under the statistics of the retained data alone; a note gives the reason if not.

    They must keep the original's retain loss within the budget: a run that starts far above it would spend its steps on
    repair.

    Args:
        model: The original model; unchanged.
        task: Runs the model on a batch.
        split: The data to forget and to retain.
        loop: The run.
        method: The method, with ``batchnorm="recalibrate"``.
    """
    reason = _obstacle(model, task, split, loop, method)
    if reason:
        loop.note(f"BatchNorm keeps the original's statistics, because {reason}; fine-tuning may bring the class back")
    return not reason


def _obstacle(model: nn.Module, task: Task, split: ForgetSplit, loop: Loop, method: Steerable) -> str:
    """Why statistics cannot be recomputed; empty if they can."""
    if loop.replicas.size > 1:
        return "several processes share the run"
    if len(split.retain_indices) < 2:
        return "a single retain sample has no variance"
    if has_frozen_batchnorm(model):
        return "some of its layers are frozen"
    settings, task = DialSettings(), task.anchored(model, split)
    own = task.retain_budget
    budget = settings.retain_budget * task.loss_unit if own is None else own
    rise = _rise(model, task, split, loop, method, settings)
    if rise <= budget * (1.0 if method.budget is None else method.budget):
        return ""
    return f"those of the retained data alone raise the retain loss by {rise:.2g}"


def _rise(
    model: nn.Module, task: Task, split: ForgetSplit, loop: Loop, method: Steerable, settings: DialSettings
) -> float:
    """Rise of L_r by new statistics; infinite if not finite."""
    chosen = shuffled(split.retain_indices, loop.seed, "landing")[: settings.statistics_samples]

    @torch.no_grad()
    def retain_loss() -> float:
        with isolated(derive(loop.seed, "landing")):
            batches = loop.eval_batches(model, split.train, chosen, settings.search_batch)
            return math.fsum(len(part) * task.retain_loss(model, batch).item() for part, batch in batches)

    with restored_statistics(model):
        before = retain_loss()
        loop.recalibrate(model, task, split, method)
        rise = (retain_loss() - before) / len(chosen)
    return rise if math.isfinite(rise) else math.inf
