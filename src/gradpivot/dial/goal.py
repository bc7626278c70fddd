r"""The goal of a run: what counts as forgotten, and the degree of forgetting at γ = 1.

A *class* is forgotten when all of its samples are misclassified. The degree of a sample is whether it is misclassified;
γ = 1 is a mean of 1.

*Records* are forgotten when the model is as uncertain about them as about held-out data. A retrained model classifies
most of them correctly, so misclassifying them all would hurt the retain set and reveal them to an attacker. The degree
of a sample is its uncertainty 1 − p_θ(y|x); γ = 1 is the original model's mean on held-out data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

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
    from gradpivot.tasks import Forgetting, GradualTask, Objective, Task, UncertaintyTask

__all__ = ["Goal", "Misclassified", "Unseen", "find_goal", "resolve_goal", "resolve_objective"]

_FOR_A_CLASS, _FOR_RECORDS = "unlikelihood", "npo"
"""Unlikelihood has the largest gradient on confident samples, which suits a class. NPO has it on uncertain ones, the
records that a model without them would get wrong."""


def resolve_goal(kind: str, task: Task, name: str | None = None) -> str:
    """The given goal, or the default for this kind of split: ``misclassified`` or ``unseen``."""
    if name is not None:
        return name
    return "unseen" if _forgets_records(kind, task) else "misclassified"


def resolve_objective(name: str, kind: str, task: Task) -> Objective:
    """Look up an objective; ``suited`` is the default for this kind of split."""
    if name == SUITED:
        name = _FOR_RECORDS if _forgets_records(kind, task) else _FOR_A_CLASS
    return find_objective(name)


def find_goal(
    name: str | None,
    objective: Objective,
    model: nn.Module,
    task: Task,
    split: ForgetSplit,
    loop: Loop,
    settings: DialSettings,
) -> Goal:
    """Create the goal of a run.

    Args:
        name: ``misclassified``, ``unseen``, or None for the split's default.
        objective: The forgetting loss.
        model: The original model.
        task: Runs the model on a batch.
        split: The data to forget and to retain.
        loop: Loads the samples.
        settings: The dial's constants.

    Raises:
        GradPivotError: If the task does not measure degrees, or the goal does not fit the split.
    """
    if not task.is_gradual:
        raise GradPivotError(
            f"{type(task).__name__} has no 'forgetting' method to measure the degree of forgetting; inherit from "
            f"gradpivot.tasks.GradualTask, or run without the dial (CUP: dial='angle', other methods: no gamma)"
        )
    objective = task.counterpart(objective)
    if resolve_goal(split.kind, task, name) == "misclassified":
        return Misclassified(cast("GradualTask", task), objective)
    if not task.measures_uncertainty:
        raise GradPivotError(
            f"{type(task).__name__} has no 'uncertainty' method; inherit from gradpivot.tasks.UncertaintyTask, or use "
            f"goal='misclassified'"
        )
    if split.kind == "class":
        raise GradPivotError(
            "goal is 'unseen', but the split forgets a whole class, which a model that has never seen it cannot "
            "predict; use goal='misclassified'"
        )
    return Unseen.of(model, cast("UncertaintyTask", task), objective, split, loop, settings)


def _forgets_records(kind: str, task: Task) -> bool:
    """Whether the split forgets records and the task can measure uncertainty."""
    return kind != "class" and task.measures_uncertainty


@dataclass(frozen=True)
class Misclassified:
    """The goal that the whole forget set is misclassified, or otherwise forgotten as defined by the task.

    Attributes:
        task: Runs the model on a batch.
        objective: The task's forgetting loss.
    """

    task: GradualTask
    objective: Objective
    is_discrete: ClassVar[bool] = True
    """Whether the degree is a fraction of samples, and so discrete."""
    full: ClassVar[float] = 1.0
    """The degree at γ = 1."""

    def forgetting(self, model: nn.Module, batch: Any) -> Forgetting:
        """L_f and whether each sample is forgotten, from one forward pass."""
        return self.task.forgetting(model, batch, self.objective)

    def degree(self, model: nn.Module, batch: Any) -> Tensor:
        """Whether each sample is forgotten."""
        return self.task.degree(model, batch, self.objective)

    def share(self, start: float) -> float:
        """Fraction of the usual loss bounds for a run that starts at degree ``start``."""
        return 1.0

    def is_reached(self, start: float) -> bool:
        """Always False: the run still repairs the retain loss."""
        return False


@dataclass(frozen=True)
class Unseen:
    """The goal that the model is as uncertain about the forget set as about held-out data.

    Attributes:
        task: Runs the model on a batch.
        objective: The task's forgetting loss.
        full: Mean uncertainty 1 − p_θ(y|x) of the original model on held-out data.
        spread: Standard deviation of the uncertainty over held-out samples.
        settings: The dial's constants.
    """

    task: UncertaintyTask
    objective: Objective
    full: float
    spread: float = 0.0
    settings: DialSettings = field(default_factory=DialSettings)
    is_discrete: ClassVar[bool] = False

    @classmethod
    def of(
        cls,
        model: nn.Module,
        task: UncertaintyTask,
        objective: Objective,
        split: ForgetSplit,
        loop: Loop,
        settings: DialSettings | None = None,
    ) -> Unseen:
        """Measure the original model on the validation data.

        Args:
            model: The original model.
            task: Runs the model on a batch.
            objective: The task's forgetting loss.
            split: Provides the validation data; the test data are not used.
            loop: Loads the samples.
            settings: The dial's constants.

        Raises:
            GradPivotError: If there are no validation data, or the model's outputs on them are not finite.
        """
        settings = settings or DialSettings()
        data = split.validation
        if data is None:
            raise GradPivotError(
                "the goal 'unseen' needs held-out data, but the split has no validation data; add some, or use half of "
                "the test data with split.with_validation()"
            )
        known = split.known_indices(data)
        if len(known) == 0:
            raise GradPivotError("the validation data are empty, or of deleted classes only; add held-out samples")
        measured = shuffled(known, loop.seed, "unseen")[: settings.validation_samples]

        @torch.no_grad()
        def mean_and_spread() -> tuple[float, float]:
            with isolated(derive(loop.seed, "unseen")):
                found = torch.cat(
                    [
                        task.uncertainty(model, batch, objective).degree.double().cpu()
                        for _, batch in loop.eval_batches(model, data, measured, settings.search_batch)
                    ]
                )
            mean = float(found.mean())
            if not math.isfinite(mean):
                raise GradPivotError(
                    "the model's outputs on the validation data are not finite; check these data for NaN"
                )
            return mean, float(found.std(correction=0))

        mean, spread = loop.replicas.from_first(mean_and_spread)
        return cls(task, objective, mean, spread, settings)

    def forgetting(self, model: nn.Module, batch: Any) -> Forgetting:
        """L_f and the uncertainty about each sample."""
        return self.task.uncertainty(model, batch, self.objective)

    def degree(self, model: nn.Module, batch: Any) -> Tensor:
        """The uncertainty about each sample."""
        return self.forgetting(model, batch).degree

    def share(self, start: float) -> float:
        """Proportional to the gap, up to 1."""
        gap = max(self.full - start, self.settings.min_record_gap)
        return min(1.0, gap / self.settings.full_gap)

    def is_reached(self, start: float) -> bool:
        """Whether the records already look like held-out data."""
        return self.full - start <= self.settings.min_record_gap


Goal = Misclassified | Unseen
"""The goal of a run."""
