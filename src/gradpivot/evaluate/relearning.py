"""Relearning from a few forgotten samples: knowledge that is hidden returns faster than it is learned anew.

The audit's attacks and the metric RELEARN share this treatment.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from gradpivot.data import Loader, shuffled
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate.classifiers.evaluation import SetPredictions, fixed_subset
from gradpivot.runtime import derive, isolated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradpivot.data import ForgetSplit
    from gradpivot.tasks import Task

__all__ = [
    "MAX_RELEARNED", "RELEARN_SHOTS", "RELEARN_STEPS", "RelearnPlan", "Shots", "mean_over_steps", "relearn_batches",
    "relearn_plan", "relearned_correctness", "repeated_batches", "sample_shots", "sgd_steps",
]  # fmt: skip

RELEARN_STEPS = (0, 1, 2, 3, 5, 7, 10, 15, 20, 30)
"""Numbers of steps after which a relearning model is scored."""
RELEARN_SHOTS = 5
"""Forgotten samples per class from which the metric RELEARN relearns."""
MAX_RELEARNED = 1000
"""Forgotten samples scored by attacks that score them many times, the same random ones for every model."""


class Shots(NamedTuple):
    """Positions of the forgotten samples that the attacker has, and of the others, which are scored."""

    given: np.ndarray
    rest: np.ndarray


def sample_shots(groups: Sequence[np.ndarray], count: int, seed: int, draw: int = 0) -> Shots:
    """Draw ``count`` positions of each group."""
    given = np.sort(np.concatenate([shuffled(group, seed, "shots", count, draw)[:count] for group in groups]))
    return Shots(given, np.setdiff1d(np.concatenate(groups), given))


def repeated_batches(indices: np.ndarray, size: int, steps: int, seed: int, *position: int | str) -> list[np.ndarray]:
    """``steps`` batches of exactly ``size`` indices, reshuffled whenever they are used up."""
    rounds = -(-size * steps // len(indices))
    order = np.concatenate([shuffled(indices, seed, *position, number) for number in range(rounds)])
    return list(order[: size * steps].reshape(steps, size))


def relearn_batches(given: np.ndarray, retain: np.ndarray, count: int, seed: int, draw: int = 0) -> list[np.ndarray]:
    """Batches of all given samples and as many retained ones."""
    retained = repeated_batches(retain, len(given), RELEARN_STEPS[-1], seed, "relearn", count, draw)
    return [np.concatenate([given, part]) for part in retained]


def sgd_steps(model: nn.Module, task: Task, batches: Iterable[Any]) -> Iterator[int]:
    """SGD (learning rate 0.01, momentum 0.9) on all weights in place; yields the number of steps after each.

    Raises:
        NonFiniteError: If the loss is not finite.
    """
    parameters = [parameter.requires_grad_() for parameter in model.parameters() if parameter.is_floating_point()]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
    for step, batch in enumerate(batches, start=1):
        with torch.enable_grad():
            loss = task.retain_loss(model, batch)
            if not torch.isfinite(loss):
                raise NonFiniteError(f"the loss is {loss.item()} at step {step}")
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield step


def mean_over_steps(curves: NDArray[np.float64], steps: Sequence[float] = RELEARN_STEPS) -> NDArray[np.float64]:
    """Mean over the curves of all samples (rows) by the trapezoidal rule."""
    return np.asarray(np.trapezoid(curves, steps, axis=1) / (steps[-1] - steps[0]))


class RelearnPlan(NamedTuple):
    """The samples of the metric RELEARN, the same for every model.

    Attributes:
        rest: Training indices of the forgotten samples that are scored.
        batches: Training indices of each step.
    """

    rest: np.ndarray
    batches: list[np.ndarray]

    @property
    def gradients(self) -> int:
        """Number of per-sample gradients."""
        return sum(map(len, self.batches))


def relearn_plan(split: ForgetSplit, seed: int = 0) -> RelearnPlan:
    """Draw :data:`RELEARN_SHOTS` samples per forgotten class, or as many of the forget set if no class is forgotten.

    Raises:
        GradPivotError: If there are no other samples to score.
    """
    records = fixed_subset(split.forget_indices, MAX_RELEARNED)
    groups = [np.arange(len(records))]
    if len(split.classes) > 1:
        labels = np.array([int(split.target(split.train[int(index)])) for index in records])
        groups = [np.flatnonzero(labels == label) for label in split.classes]
    if (smallest := min(map(len, groups))) <= RELEARN_SHOTS:
        raise GradPivotError(
            f"RELEARN needs more than {RELEARN_SHOTS} forget samples{' per class' if split.classes else ''}; there are "
            f"{smallest}"
        )
    given, rest = sample_shots(groups, RELEARN_SHOTS, seed)
    return RelearnPlan(records[rest], relearn_batches(records[given], split.retain_indices, RELEARN_SHOTS, seed))


def relearned_correctness(
    model: nn.Module,
    split: ForgetSplit,
    task: Task,
    plan: RelearnPlan,
    predict: Callable[[nn.Module, Any, np.ndarray], SetPredictions],
    *,
    workers: int = 0,
) -> NDArray[np.float64]:
    """Correctness of a relearning copy of the model on each sample of ``plan.rest``, averaged over the steps.

    Args:
        model: Not modified.
        split: The data.
        task: Runs the model on a batch.
        plan: From :func:`relearn_plan`.
        predict: Predictions of a model in eval mode on samples of a dataset.
        workers: Data-loading processes.

    Raises:
        NonFiniteError: If a loss or an output is not finite.
    """
    # In eval mode, because the batches are too small for the statistics of BatchNorm.
    pupil = copy.deepcopy(model).eval()
    loader = Loader(split.train, next(pupil.parameters()).device, seed=0, workers=workers)
    columns = [predict(pupil, split.train, plan.rest).correct]
    with isolated(derive(0, "relearn")):
        steps = sgd_steps(pupil, task, loader.batches(plan.batches, epoch=-1))
        columns += [predict(pupil, split.train, plan.rest).correct for step in steps if step in RELEARN_STEPS]
    return mean_over_steps(np.stack(columns, axis=1).astype(np.float64))
