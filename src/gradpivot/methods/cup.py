"""CUP: controllable unlearning by pivoting gradients (Hwang & Lim, 2025, Algorithm 1), with a calibrated dial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from gradpivot.dial import LAG, LONGEST_MOVE, SOFTEST, Change, Course, StepLength, asked_degree
from gradpivot.errors import GradPivotError
from gradpivot.geometry import check_gamma, pivot_weights, steered_weights
from gradpivot.methods.method import ForgettingDescent
from gradpivot.tasks import Objective, objective

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.dial import Goal
    from gradpivot.loop import Loop
    from gradpivot.tasks import DoubtingTask, GradualTask, Task

__all__ = ["CUP"]

SUITED = "suited"
_FOR_A_CLASS, _FOR_RECORDS = "unlikelihood", "npo"
"""Unlikelihood pulls most at what a model is sure of, as it is of a class; NPO at what it doubts already, which is what
a model that has not seen a record gets wrong."""


@dataclass(frozen=True, kw_only=True)
class CUP(ForgettingDescent):
    """Each step pivots between keeping and forgetting inside the conflict-free cone; γ says how much is forgotten.

    By default γ is a *degree*: the run ends where a share sin(πγ/2) of the way from the original to "forgotten" is
    done, for any learning rate, batch size and model (:mod:`gradpivot.dial`). Steps are checked, and taken back if they
    hurt. With ``dial="angle"`` γ is the angle of the paper's equations, and ``CUP.protocol("paper", gamma=…)`` is the
    printed form.

    Attributes:
        gamma: The unlearning intensity γ ∈ [0, 1].
        dial: What γ means: the ``degree`` of forgetting, or the pivot's ``angle`` at every step.
        goal: What is forgotten at γ = 1: all that is ``misclassified``, or what is in as much doubt as ``unseen`` data,
            for which the split's validation data stand. None takes the first for a class and the second for records.
        objective: As for every method, or ``suited``: unlikelihood for a class, npo for records; by angle always
            unlikelihood.
        gamma_end: If given, the angle goes linearly from ``gamma`` to this over the run.
        budget: How much of what a run may cost L_r (0.15 nats for a classifier) this one may, in [0, 1]; if not given,
            as much as γ asks for of forgetting, sin(πγ/2).
    """

    name: ClassVar[str] = "cup"
    title: ClassVar[str] = "CUP"
    knob: ClassVar[str | None] = "gamma"
    paper: ClassVar[Mapping[str, Any]] = {**ForgettingDescent.paper, "dial": "angle", "momentum": 0.9}
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "lr": (1e-4, 1e-3),
        "gamma": (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    }

    more_objectives: ClassVar[tuple[str, ...]] = (SUITED,)

    gamma: float = 0.5
    dial: Literal["degree", "angle"] = "degree"
    goal: Literal["misclassified", "unseen"] | None = None
    objective: str = SUITED
    gamma_end: float | None = None
    budget: float | None = None
    # The pivot's promise is about the gradient of this step; momentum would add those of others. The length is found.
    momentum: float = 0.0
    max_norm: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_gamma(self.gamma)
        if self.gamma_end is not None:
            check_gamma(self.gamma_end)
            if self.dial != "angle":
                raise GradPivotError(
                    "CUP: gamma_end is a schedule of the angle; set dial='angle', or give the degree as gamma alone"
                )
        if self.goal is not None and self.dial != "degree":
            raise GradPivotError(
                "CUP: goal says where a run to a degree ends; leave it out, or set dial='degree'"
            )
        if self.budget is not None:
            self._check("budget", least=0, most=1)
            if self.dial != "degree":
                raise GradPivotError(
                    "CUP: budget bounds a run to a degree; leave it out, or set dial='degree'"
                )

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Algorithm 1 as printed, or steered to the degree that γ asks for."""
        if self.dial == "angle":
            self._by_angle(model, task, split, loop)
        else:
            self._to_degree(model, _gradual(task), split, loop)

    def looks_at_unseen(self, kind: str, task: Task) -> bool:
        """Whether it steers by validation data, on a split of that kind."""
        return self.dial == "degree" and self._goal_name(kind, task) == "unseen"

    def _goal_name(self, kind: str, task: Task) -> str:
        """What forgotten means; a task that knows no doubt keeps its own degree."""
        if self.goal is not None:
            return self.goal
        return "unseen" if _are_records(kind, task) else "misclassified"

    def gamma_at(self, progress: float) -> float:
        """γ when a fraction ``progress`` of the steps is done."""
        if self.gamma_end is None:
            return self.gamma
        return self.gamma + (self.gamma_end - self.gamma) * progress

    def _objective(self, kind: str, task: Task) -> Objective:
        suited = _FOR_RECORDS if _are_records(kind, task) else _FOR_A_CLASS
        return objective(suited if self.objective == SUITED else self.objective)

    def _goal(self, model: nn.Module, task: GradualTask, split: ForgetSplit, loop: Loop) -> Goal:
        from gradpivot.dial import Misclassified, Unseen
        from gradpivot.tasks import meaning_of

        name = self._goal_name(split.kind, task)
        meant = meaning_of(task, self._objective(split.kind, task))
        if name == "misclassified":
            return Misclassified(task, meant)
        if not hasattr(task, "doubting"):
            raise GradPivotError(
                f"{type(task).__name__} has no 'doubting', which tells how sure a model is of each sample; add it "
                f"(see gradpivot.tasks.task), or use goal='misclassified'"
            )
        if split.kind == "class":
            raise GradPivotError(
                "CUP: goal is 'unseen', and a whole class is forgotten: a model that has never seen it does not name "
                "it at all; use goal='misclassified'"
            )
        return Unseen.of(model, cast("DoubtingTask", task), meant, split, loop)

    def _by_angle(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Two gradients, their Gram matrix to two weights, one step."""
        forgetting = self._objective("class", task)
        for batch in loop.paired_batches(model, task, split, self):
            gradients = loop.gradients(
                forget=partial(task.forget_loss, model, batch.forget, forgetting),
                retain=partial(task.retain_loss, model, batch.retain),
            )
            weights = pivot_weights(*gradients.gram, self.gamma_at(batch.progress))
            loop.step(gradients, weights)

    def _to_degree(self, model: nn.Module, task: GradualTask, split: ForgetSplit, loop: Loop) -> None:
        """Turn by feedback, look whether the step did what it should, and land on what was asked for."""
        from gradpivot.dial import Landing
        from gradpivot.geometry import limited
        from gradpivot.loop import finite, paired_plan
        from gradpivot.tasks import loss_unit

        goal = self._goal(model, task, split, loop)
        anew = partial(loop.recalibrate, model, task, split, self)
        settle = anew if self.batchnorm == "recalibrate" else None
        landing = Landing(model, goal, split, loop, settle)
        if goal.is_reached(landing.start):
            loop.note(
                "never-seen data are in no more doubt than the samples to forget, so there is nothing to forget"
            )
            return
        way = asked_degree(self.gamma)
        asked = landing.start + (goal.most - landing.start) * way
        budget = way if self.budget is None else self.budget
        share = goal.share(landing.start)
        course = self._course(model, goal, split, loop, landing.start, asked)
        length = StepLength.of_run(paired_plan(split, self, loop.seed).total, loss_unit(task), share)
        longest = LONGEST_MOVE * landing.weights_length / self.lr
        for batch in loop.paired_batches(model, task, split, self):
            _resume(course, length, loop)
            forget = _Watched(goal, model, batch.forget, self.batchnorm)
            retain = partial(task.retain_loss, model, batch.retain)
            gradients = loop.gradients(forget=forget, retain=retain)
            before = gradients.forget_loss or 0.0, gradients.retain_loss or 0.0
            degree = loop.mean_over_forget(forget.degree)
            intensity = course.intensity(batch.progress, degree, loop.forget_samples, before[1])
            weights = steered_weights(gradients.gram, intensity)
            rate = length.rate * course.calm(batch.progress)
            weights, size = limited(weights, gradients.gram, longest / rate)
            moved = loop.step(gradients, weights, rate=rate, promised=(intensity >= 0, True))
            after = loop.losses_again(forget=forget.again, retain=retain)
            changes = [Change(*change) for change in zip(before, after, moved, strict=True)]
            wanting = course.behind > LAG and not course.is_hurt and degree < 1 and size < longest / rate
            kept = length.judge(*changes, grow=wanting)
            if not kept:
                loop.take_back()
            loop.record(
                degree=degree,
                asked=course.by_now(batch.progress),
                intensity=intensity,
                rate=length.rate,
                forget_change=finite(changes[0].actual),
                retain_change=finite(changes[1].actual),
                taken_back=float(not kept),
                start=landing.start,
                most=goal.most,
                landed=None,
                reached=None,
                **course.columns(),
            )
        landed = landing.at(asked, of_budget=budget)
        loop.record(asked=asked, landed=landed, reached=landing.reached)

    def _course(
        self, model: nn.Module, goal: Goal, split: ForgetSplit, loop: Loop, start: float, asked: float
    ) -> Course:
        """From the start to what is asked for, as the batches of a run show it."""
        from gradpivot.tasks import loss_unit

        shift = 0.0
        if not goal.counts:
            # Augmentation and dropout add doubt of their own, which may be more than all that is asked for.
            seen = partial(_degree_seen, goal, model, self.batchnorm)
            shift = loop.forget_shift(
                model, split, self, seen, lambda batch: float(goal.degree(model, batch).mean())
            )
        return Course(
            start=start + shift,
            asked=asked + shift,
            most=goal.most + shift,
            retain_start=loop.retain_level(model, goal.task, split, self),
            unit=loss_unit(goal.task) * goal.share(start),
            softest=SOFTEST if goal.objective.gives_back else 0.0,
        )


def _gradual(task: Task) -> GradualTask:
    if not hasattr(task, "forgetting"):
        raise GradPivotError(
            f"{type(task).__name__} has no 'forgetting', which tells how much of a batch is forgotten; add it (see "
            f"gradpivot.tasks.task), or use dial='angle'"
        )
    return cast("GradualTask", task)


class _Watched:
    """A forget loss that also sees how much of its batch is forgotten, in the same forward pass where that can be.

    A batch of one class that BatchNorm normalises by itself looks like any other and tells nothing of UA: in train mode
    the degree takes a pass of its own, by the running statistics. If those are taken anew after the run
    (``recalibrate``), they follow the retain batches alone, as they then will.
    """

    def __init__(self, goal: Goal, model: nn.Module, batch: Any, batchnorm: str) -> None:
        self._goal, self._model, self._batch = goal, model, batch
        self._recalibrates = batchnorm == "recalibrate"
        self.degree = 0.0

    def __call__(self) -> Tensor:
        from gradpivot.loop import has_batch_statistics

        if has_batch_statistics(self._model):
            self.degree = self._degree_by_itself()
            return self._loss_alone()
        loss, degree = self._goal.forgetting(self._model, self._batch)
        self.degree = float(degree.mean())
        return loss

    def again(self) -> Tensor:
        """The loss as it was computed before, draw by draw: another way to it may take other random numbers."""
        from gradpivot.loop import has_batch_statistics

        if has_batch_statistics(self._model):
            return self._loss_alone()
        return self._goal.forgetting(self._model, self._batch).loss

    def _loss_alone(self) -> Tensor:
        from gradpivot.loop import statistics_kept

        with statistics_kept(self._model) if self._recalibrates else nullcontext():
            return self._goal.task.forget_loss(self._model, self._batch, self._goal.objective)

    def _degree_by_itself(self) -> float:
        from torch import no_grad

        from gradpivot.runtime import evaluating, rewinder

        rewind = rewinder()
        with no_grad(), evaluating(self._model):
            degree = float(self._goal.degree(self._model, self._batch).mean())
        rewind()
        return degree


def _are_records(kind: str, task: Task) -> bool:
    """Whether single samples are forgotten of a model that can be sure or in doubt of each."""
    return kind != "class" and hasattr(task, "doubting")


def _degree_seen(goal: Goal, model: nn.Module, batchnorm: str, batch: Any) -> float:
    """The degree of a batch as a step sees it."""
    watched = _Watched(goal, model, batch, batchnorm)
    watched()
    return watched.degree


def _resume(course: Course, length: StepLength, loop: Loop) -> None:
    """Take up the state that a killed run left in its history."""
    row = loop.last_row
    if course.evidence == 0 and row is not None:
        course.resume(row)
        length.rate = row["rate"]
