"""The dial: γ as a promise, around any method that can be steered.

    dial = Dial(method, model, task, split, loop)       # measure the start, find the target degree
    for batch in loop.paired_batches(model, task, split, method):
        dial.step(batch)                                # ramp → intensity → the method's weights → trust region
    dial.land()                                         # line search to the target degree

See docs/dial.md.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from gradpivot.dial.forget_loss import ForgetLoss
from gradpivot.dial.goal import find_goal, suited_objective
from gradpivot.dial.line_search import LineSearch
from gradpivot.dial.ramp import Ramp, asked_degree
from gradpivot.dial.settings import DialSettings
from gradpivot.dial.trust_region import Change, TrustRegion
from gradpivot.geometry import limited
from gradpivot.loop import DescentRecipe, finite, paired_plan

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.geometry import Gram, Weights
    from gradpivot.loop import Gradients, Loop, Moved, PairedBatch
    from gradpivot.tasks import Task

__all__ = ["Dial", "Steerable"]


class Steerable(DescentRecipe, Protocol):
    """What the dial needs of a method."""

    conflict_free: ClassVar[bool]
    """Whether its step promises that neither loss rises to first order."""

    @property
    def gamma(self) -> float | None:
        """The unlearning intensity γ ∈ [0, 1]; None leaves the dial off."""
        ...

    @property
    def goal(self) -> str | None:
        """What counts as forgotten; None for what suits the split."""
        ...

    @property
    def objective(self) -> str:
        """The forgetting loss."""
        ...

    @property
    def budget(self) -> float | None:
        """Fraction of the retain-loss budget; None for as much as γ asks for of forgetting."""
        ...

    def steered(self, gram: Gram, intensity: float) -> Weights:
        """The weights of f and r at an intensity from −1 (give back) over 0 (repair) to 1 (forget)."""
        ...


class Dial:
    """Steers a run to the degree of forgetting that γ asks for.

    Args:
        method: What combines the two gradients.
        model: The model before the run.
        task: Runs it on a batch.
        split: What is forgotten.
        loop: The run.
        settings: The constants.
    """

    def __init__(
        self,
        method: Steerable,
        model: nn.Module,
        task: Task,
        split: ForgetSplit,
        loop: Loop,
        settings: DialSettings | None = None,
    ) -> None:
        assert method.gamma is not None
        self._method, self._model, self._task, self._loop = method, model, task, loop
        self._use = settings or DialSettings()
        objective = suited_objective(method.objective, split.kind, task)
        self._goal = find_goal(method.goal, objective, model, task, split, loop, self._use)
        recompute = partial(loop.recalibrate, model, task, split, method)
        settle = recompute if method.batchnorm == "recalibrate" else None
        self._search = LineSearch(model, self._goal, split, loop, settle, self._use)
        start = self._search.start
        self.is_reached = self._goal.is_reached(start)
        """Whether there is nothing to forget, and so nothing to run."""
        if self.is_reached:
            loop.note(
                "the model is as uncertain about the samples to forget as about held-out data, so there is nothing to "
                "forget"
            )
            return
        fraction = asked_degree(method.gamma)
        self._asked = start + (self._goal.full - start) * fraction
        self._budget = fraction if method.budget is None else method.budget
        self._ramp = self._new_ramp(split)
        steps = paired_plan(split, method, loop.seed).total
        self._region = TrustRegion.of_run(steps, task.loss_unit, self._goal.share(start), self._use)
        self._max_norm = self._use.max_move * self._search.weights_length / method.lr
        loop.attach(self)

    def _new_ramp(self, split: ForgetSplit) -> Ramp:
        """From the start to what is asked for, as the batches of a run show it."""
        goal, model, loop, method = self._goal, self._model, self._loop, self._method
        start, shift = self._search.start, 0.0
        if not goal.counts:
            # Augmentation and dropout add uncertainty of their own, which may be more than all that is asked for.
            shift = loop.forget_shift(
                model, split, method, self._degree_in_run, lambda batch: float(goal.degree(model, batch).mean())
            )
        return Ramp(
            start=start + shift,
            asked=self._asked + shift,
            full=goal.full + shift,
            retain_start=loop.retain_level(model, goal.task, split, method),
            unit=goal.task.loss_unit * goal.share(start),
            gives_back=goal.objective.gives_back,
            settings=self._use,
        )

    def _degree_in_run(self, batch: Any) -> float:
        """The degree of a batch as a step sees it."""
        loss = ForgetLoss(self._goal, self._model, batch, self._method.batchnorm)
        loss()
        return loss.degree

    def step(self, batch: PairedBatch) -> None:
        """One step: turn by feedback, look whether it did what it should, and take it back if it did harm."""
        loop, ramp, region = self._loop, self._ramp, self._region
        forget = ForgetLoss(self._goal, self._model, batch.forget, self._method.batchnorm)
        retain = partial(self._task.retain_loss, self._model, batch.retain)
        gradients = loop.gradients(forget=forget, retain=retain)
        degree = loop.mean_over_forget(forget.degree)
        before = gradients.forget_loss or 0.0, gradients.retain_loss or 0.0
        intensity = ramp.intensity(batch.progress, degree, loop.forget_samples, before[1])
        rate = region.rate * ramp.rate(batch.progress)
        moved, at_limit = self._move(gradients, intensity, rate)
        after = loop.losses_again(forget=forget.recompute, retain=retain)
        changes = [Change(*change) for change in zip(before, after, moved, strict=True)]
        lags = ramp.behind > self._use.growth_lag and not ramp.is_hurt
        kept = region.accept(*changes, grow=lags and degree < 1 and not at_limit)
        if not kept:
            loop.take_back()
        loop.record(
            degree=degree,
            asked=ramp.target(batch.progress),
            intensity=intensity,
            rate=region.rate,
            forget_change=finite(changes[0].actual),
            retain_change=finite(changes[1].actual),
            taken_back=float(not kept),
            lag=ramp.lag,
            retain_level=ramp.retain_level,
            start=self._search.start,
            most=self._goal.full,
            landed=None,
            reached=None,
        )

    def _move(self, gradients: Gradients, intensity: float, rate: float) -> tuple[Moved, bool]:
        """Step along the method's direction; what that does to first order, and whether the length was cut."""
        limit = self._max_norm / rate
        weights = self._method.steered(gradients.gram, intensity)
        weights, size = limited(weights, gradients.gram, limit)
        # What momentum, Adam or weight decay add against the promise is taken out again.
        promised = (intensity >= 0, True) if self._method.conflict_free else (False, False)
        return self._loop.step(gradients, weights, rate=rate, promised=promised), size >= limit

    def land(self) -> None:
        """Move along the line to the original until the degree is the one that was asked for, within the budget."""
        landed = self._search.land(self._asked, budget=self._budget)
        self._loop.record(asked=self._asked, landed=landed, reached=self._search.reached)

    def state_dict(self) -> dict[str, Any]:
        """What the next step depends on."""
        return {"ramp": self._ramp.state_dict(), "region": self._region.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self._ramp.load_state_dict(state["ramp"])
        self._region.load_state_dict(state["region"])
