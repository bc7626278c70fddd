"""The dial: steer any steerable method to the degree of forgetting that γ sets.

    dial = Dial(method, model, task, split, loop)       # measure the start, compute the target degree
    for batch in loop.paired_batches(model, task, split, method):
        dial.step(batch)                                # ramp → intensity → the method's weights → trust region
    dial.finish()                                       # line search to the target degree

See docs/dial.md.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from gradpivot.dial.forget_loss import ForgetLoss, Normalisation, normalisation_of
from gradpivot.dial.goal import find_goal, resolve_objective
from gradpivot.dial.held import Held
from gradpivot.dial.line_search import LineSearch
from gradpivot.dial.ramp import Ramp, target_degree
from gradpivot.dial.settings import DialSettings
from gradpivot.dial.trust_region import Change, TrustRegion
from gradpivot.loop import DescentRecipe, finite, has_batchnorm, paired_plan
from gradpivot.runtime import evaluating

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.geometry import Gram, Weights
    from gradpivot.loop import FirstOrderChange, Gradients, Loop, PairedBatch
    from gradpivot.tasks import Task

__all__ = ["Dial", "Steerable"]


class Steerable(DescentRecipe, Protocol):
    """What the dial needs from a method."""

    conflict_free: ClassVar[bool]
    """Whether its steps increase neither loss to first order."""

    @property
    def gamma(self) -> float | None:
        """Unlearning intensity γ in [0, 1]; None disables the dial."""
        ...

    @property
    def goal(self) -> str | None:
        """What counts as forgotten; None for the split's default."""
        ...

    @property
    def objective(self) -> str:
        """The forgetting loss."""
        ...

    @property
    def budget(self) -> float | None:
        """Fraction of the retain-loss budget to spend; None for the target degree of γ."""
        ...

    def steered(self, gram: Gram, intensity: float) -> Weights:
        """Weights of f and r at an intensity in [−1, 1]: 1 forgets, 0 repairs, −1 restores what was forgotten."""
        ...


class Dial:
    """Steers a run to the degree of forgetting that γ sets.

    Args:
        method: Combines the two gradients.
        model: The original model.
        task: Runs the model on a batch.
        split: The data to forget and to retain.
        loop: The run.
        settings: Constants.
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
        task = task.anchored(model, split)
        if (mask := task.restriction(model, loop.note)) is not None:
            loop.restrict(model, mask)
        self._method, self._model, self._task, self._loop = method, model, task, loop
        self._settings = settings or DialSettings()
        objective = resolve_objective(method.objective, split.kind, task)
        self._goal = find_goal(method.goal, objective, model, task, split, loop, self._settings)
        recompute = partial(loop.recalibrate, model, task, split, method)
        recalibrate = recompute if method.batchnorm == "recalibrate" and has_batchnorm(model) else None
        self._search = LineSearch(model, self._goal, split, loop, recalibrate, self._settings)
        start = self._search.start
        self.is_reached = self._goal.is_reached(start)
        """Whether there is nothing to forget."""
        if self.is_reached:
            loop.note(
                "nothing to forget: the model is already as uncertain about the forget set as about held-out data, and "
                "is returned unchanged"
            )
            return
        self._held = Held.of(model, task, split, loop, self._settings)
        if recalibrate:
            # The run starts with the statistics it will end with.
            recalibrate()
        fraction = target_degree(method.gamma)
        self._target = start + (self._goal.full - start) * fraction
        self._budget = fraction if method.budget is None else method.budget
        self._ramp = self._new_ramp(split)
        self._steps = paired_plan(split, method, loop.seed).total
        bounds = self._settings
        if not self._goal.is_discrete:
            # Records have little to forget; runs that check fewer of their steps more often fall short.
            bounds = replace(bounds, check_forget_above=bounds.check_above)
        self._region = TrustRegion.for_run(self._steps, task.loss_unit, self._goal.share(start), bounds)
        if recalibrate and fraction >= 1:
            # L_f falls more slowly where statistics follow the weights, and γ = 1 has no intermediate target.
            self._region.reach = self._settings.whole_reach
        self._max_length = self._settings.max_move * self._search.weight_norm
        loop.attach(self)

    def _new_ramp(self, split: ForgetSplit) -> Ramp:
        """The ramp from the start to the target degree, as measured on training batches."""
        goal, model, loop, method = self._goal, self._model, self._loop, self._method
        start, shift = self._search.start, 0.0
        if not goal.is_discrete:
            # Augmentation and dropout add uncertainty, possibly more than the whole gap to the target.
            shift = loop.forget_shift(
                model, split, method, self._degree_in_run, lambda batch: float(goal.degree(model, batch).mean())
            )
        return Ramp(
            start=start + shift,
            end=self._target + shift,
            full=goal.full + shift,
            retain_start=loop.retain_level(model, goal.task, split, method),
            unit=self._search.full_budget / self._settings.retain_budget,
            reversible=goal.objective.reversible,
            settings=self._settings,
        )

    @cached_property
    def _normalisation(self) -> Normalisation:
        """How BatchNorm treats the forget batches of the run, whose policy is applied before the first of them."""
        return normalisation_of(self._model, self._method.batchnorm)

    def _degree_in_run(self, batch: Any) -> float:
        """The degree of a training batch."""
        loss = ForgetLoss(self._goal, self._model, batch, self._normalisation)
        loss()
        return loss.degree

    def step(self, batch: PairedBatch) -> None:
        """Take one step at the intensity the ramp sets, and revert it if it does harm."""
        loop, ramp, region = self._loop, self._ramp, self._region
        forget = ForgetLoss(self._goal, self._model, batch.forget, self._normalisation, batch.retain)
        retain = partial(self._retain_loss, batch)
        gradients = loop.gradients(forget=forget, retain=retain)
        degree = loop.mean_over_forget(forget.degree)
        before = gradients.forget_loss or 0.0, gradients.retain_loss or 0.0
        intensity = ramp.intensity(batch.progress, degree, loop.forget_samples, before[1])
        rate = region.rate * ramp.rate(batch.progress)
        moved, length = self._move(gradients, intensity, rate)
        lags = ramp.behind > self._settings.growth_lag and not ramp.needs_repair
        grow = lags and degree < 1 and length < self._max_length
        f_change, r_change = Change(before[0], math.nan, moved[0]), Change(before[1], math.nan, moved[1])
        kept = region.trust(f_change, r_change, length, grow=grow)
        if not kept:
            after = loop.recompute_losses(forget=forget.recompute, retain=retain)
            f_change, r_change = f_change._replace(after=after[0]), r_change._replace(after=after[1])
            kept = region.accept(f_change, r_change, length, grow=grow)
        if not kept:
            loop.revert_step()
        loop.record(
            degree=degree,
            asked=ramp.target(batch.progress),
            intensity=intensity,
            rate=region.rate,
            forget_change=finite(f_change.actual),
            retain_change=finite(r_change.actual),
            taken_back=float(not kept),
            lag=ramp.lag,
            retain_level=ramp.retain_level,
            start=self._search.start,
            most=self._goal.full,
            landed=None,
            reached=None,
        )

    def is_done(self, progress: float) -> bool:
        """Whether the target has been held after the ramp, L_r is back and the forget set is at the target.

        Looks once in every tenth of the run, because batches measure the degree to a few points only.
        """
        settings, ramp = self._settings, self._ramp
        if self._method.batchnorm == "recalibrate" and has_batchnorm(self._model):
            # Under new statistics held-out accuracy still improves after L_r is back.
            return False
        before = progress - 1 / max(self._steps - 1, 1)
        if progress < settings.ramp + settings.hold or int(10 * progress) == int(10 * before):
            return False
        on_target = abs(ramp.behind) <= settings.done_lag
        repaired = ramp.retain_level <= ramp.retain_start + settings.done_rise * ramp.unit
        return on_target and repaired and self._is_at_target()

    def _is_at_target(self) -> bool:
        """Whether the degree of the forget set is within the line search's tolerance of the target, or beyond."""
        with evaluating(self._model):
            degree = self._loop.replicas.from_first(self._search.degree)
        gap = self._goal.full - self._search.start
        return degree >= self._target - self._settings.search_tolerance * gap

    def _retain_loss(self, batch: PairedBatch) -> Tensor:
        """L_r, plus how far the predictions on already forgotten records have moved."""
        loss = self._task.retain_loss(self._model, batch.retain)
        if self._held is None:
            return loss
        return loss + self._held.loss(round(batch.progress * (self._steps - 1)))

    def _move(self, gradients: Gradients, intensity: float, rate: float) -> tuple[FirstOrderChange, float]:
        """Step along the method's direction; returns the first-order changes and the length of a plain step."""
        per_norm = self._method.lr * rate
        limit = self._max_length / per_norm
        weights, size = self._loop.limited(self._method.steered(gradients.gram, intensity), gradients, limit)
        # Momentum, Adam and weight decay must not break conflict-freeness.
        non_increasing = (intensity >= 0, True) if self._method.conflict_free else (False, False)
        moved = self._loop.step(gradients, weights, rate=rate, non_increasing=non_increasing)
        return moved, self._max_length if size >= limit else size * per_norm

    def finish(self) -> None:
        """Line search between the original and the final weights for the target degree, within the retain budget."""
        landed = self._search.move_to(self._target, budget=self._budget)
        self._loop.record(asked=self._target, landed=landed, reached=self._search.reached)

    def state_dict(self) -> dict[str, Any]:
        """State that the next step depends on."""
        return {"ramp": self._ramp.state_dict(), "region": self._region.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from :meth:`state_dict`."""
        self._ramp.load_state_dict(state["ramp"])
        self._region.load_state_dict(state["region"])
