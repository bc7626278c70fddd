r"""What a run by degree is steered to: what counts as forgotten, and how much of it γ = 1 asks for.

A *class* is forgotten when no sample of it is recognised: the degree of a sample is whether it is misclassified, and
γ = 1 asks for all of them.

*Records* are forgotten when the model is as uncertain about them as about held-out data. A retrained model recognises
most of them, too: misclassifying them all would destroy what is kept, and show an attacker which they were. The degree
of a sample is then its uncertainty 1 − p_θ(y|x), and γ = 1 asks for the mean that the original has on held-out data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch

from gradpivot.data import shuffled
from gradpivot.dial.settings import SUITED, DialSettings
from gradpivot.errors import GradPivotError
from gradpivot.runtime import derive, isolated
from gradpivot.tasks import objective as find_objective

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import DoubtingTask, Forgetting, GradualTask, Objective, Task

__all__ = ["Goal", "Misclassified", "Unseen", "find_goal", "goal_name", "suited_objective"]

_FOR_A_CLASS, _FOR_RECORDS = "unlikelihood", "npo"
"""Unlikelihood pulls most at what a model is sure of, as it is of a class; NPO at what it is uncertain about already,
which is what a model that has not seen a record gets wrong."""


def goal_name(kind: str, task: Task, asked: str | None = None) -> str:
    """``misclassified`` or ``unseen``: what was asked for, else what suits a split of that kind."""
    if asked is not None:
        return asked
    return "unseen" if _are_records(kind, task) else "misclassified"


def suited_objective(name: str, kind: str, task: Task) -> Objective:
    """The objective of that name; for ``suited`` the one that suits a split of that kind."""
    if name == SUITED:
        name = _FOR_RECORDS if _are_records(kind, task) else _FOR_A_CLASS
    return find_objective(name)


def find_goal(
    asked: str | None,
    objective: Objective,
    model: nn.Module,
    task: Task,
    split: ForgetSplit,
    loop: Loop,
    settings: DialSettings,
) -> Goal:
    """The goal of a run.

    Args:
        asked: ``misclassified``, ``unseen``, or None for what suits the split.
        objective: The forgetting loss.
        model: The original.
        task: Runs it on a batch.
        split: What is forgotten.
        loop: Gives the samples.
        settings: The dial's constants.

    Raises:
        GradPivotError: if the task knows no degree, or the goal does not fit the split.
    """
    if not task.is_gradual:
        raise GradPivotError(
            f"{type(task).__name__} has no 'forgetting', which gives the degree of forgetting of a batch; inherit from "
            f"gradpivot.tasks.GradualTask and add it, or run without the dial (dial='angle' of CUP, no gamma of others)"
        )
    gradual, meant = cast("GradualTask", task), task.meant(objective)
    if goal_name(split.kind, task, asked) == "misclassified":
        return Misclassified(gradual, meant)
    if not task.knows_doubt:
        raise GradPivotError(
            f"{type(task).__name__} has no 'doubting', which gives the model's uncertainty about each sample; inherit "
            f"from gradpivot.tasks.DoubtingTask and add it, or use goal='misclassified'"
        )
    if split.kind == "class":
        raise GradPivotError(
            "goal is 'unseen', and a whole class is forgotten: a model that has never seen it does not name it at all; "
            "use goal='misclassified'"
        )
    return Unseen.of(model, cast("DoubtingTask", task), meant, split, loop, settings)


def _are_records(kind: str, task: Task) -> bool:
    """Whether single samples are forgotten, of a task that knows a model's uncertainty about each."""
    return kind != "class" and task.knows_doubt


@dataclass(frozen=True)
class Misclassified:
    """The whole forget set is misclassified, or whatever else the task calls forgotten.

    Attributes:
        task: Runs the model on a batch.
        objective: The forgetting loss, as the task means it.
    """

    task: GradualTask
    objective: Objective
    counts: ClassVar[bool] = True
    """Whether a degree is a share of samples, which comes in steps of one."""
    full: ClassVar[float] = 1.0
    """The degree that γ = 1 asks for."""

    def forgetting(self, model: nn.Module, batch: Any) -> Forgetting:
        """L_f and whether each sample is forgotten, from one forward pass."""
        return self.task.forgetting(model, batch, self.objective)

    def degree(self, model: nn.Module, batch: Any) -> Tensor:
        """Whether each sample is forgotten."""
        return self.task.degree(model, batch, self.objective)

    def share(self, start: float) -> float:
        """Fraction of the usual bounds on the losses for a run that begins at a degree of ``start``: all of it."""
        return 1.0

    def is_reached(self, start: float) -> bool:
        """Whether there is nothing to forget: never, a run holds what is forgotten already and repairs."""
        return False


@dataclass(frozen=True)
class Unseen:
    """The model is as uncertain about the forget set as about held-out data.

    Attributes:
        task: Runs the model on a batch.
        objective: The forgetting loss, as the task means it.
        full: The mean uncertainty 1 − p_θ(y|x) of the original on held-out data.
        settings: The dial's constants.
    """

    task: DoubtingTask
    objective: Objective
    full: float
    settings: DialSettings = field(default_factory=DialSettings)
    counts: ClassVar[bool] = False

    @classmethod
    def of(
        cls,
        model: nn.Module,
        task: DoubtingTask,
        objective: Objective,
        split: ForgetSplit,
        loop: Loop,
        settings: DialSettings | None = None,
    ) -> Unseen:
        """Measure the original on the validation data, once.

        Args:
            model: The original.
            task: Runs it on a batch.
            objective: The forgetting loss, as the task means it.
            split: Has the validation data; the test data are not looked at.
            loop: Gives the samples.
            settings: The dial's constants.

        Raises:
            GradPivotError: if there are none.
        """
        settings = settings or DialSettings()
        data = split.validation
        if data is None:
            raise GradPivotError(
                "forgotten records should look like held-out data, and the split has none to compare with: give "
                "validation data, or half of the test data by split.with_validation()"
            )
        if len(data) == 0:
            raise GradPivotError("the validation data are empty; give some that the model has never seen")
        measured = shuffled(np.arange(len(data)), loop.seed, "unseen")[: settings.validation_samples]

        @torch.no_grad()
        def mean_uncertainty() -> float:
            with isolated(derive(loop.seed, "unseen")):
                sums = [
                    task.doubting(model, batch, objective).degree.double().sum().item()
                    for _, batch in loop.pass_over(model, data, measured, settings.search_batch)
                ]
            mean = float(np.sum(sums) / len(measured))
            if not math.isfinite(mean):
                raise GradPivotError(
                    "the model's outputs on the validation data are not finite; look for NaN in these data"
                )
            return mean

        return cls(task, objective, loop.replicas.from_first(mean_uncertainty), settings)

    def forgetting(self, model: nn.Module, batch: Any) -> Forgetting:
        """L_f and the uncertainty about each sample."""
        return self.task.doubting(model, batch, self.objective)

    def degree(self, model: nn.Module, batch: Any) -> Tensor:
        """The uncertainty about each sample."""
        return self.forgetting(model, batch).degree

    def share(self, start: float) -> float:
        """Less than all of it where the gap is small."""
        gap = max(self.full - start, self.settings.min_record_gap)
        return min(1.0, gap / self.settings.full_gap)

    def is_reached(self, start: float) -> bool:
        """Records that look like held-out data need not be changed."""
        return self.full - start <= self.settings.min_record_gap


Goal = Misclassified | Unseen
"""What a run is steered by."""
