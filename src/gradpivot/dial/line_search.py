"""The line search: after a run, find the target degree on the line between the original and the final weights.

The run steers by mini-batches, which measure the degree to a few points. The line search measures it on the forget set
without augmentation. It needs forward passes only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gradpivot.data import shuffled
from gradpivot.dial.segment import Segment, false_position
from gradpivot.dial.settings import DialSettings
from gradpivot.loop import restored_statistics
from gradpivot.runtime import derive, isolated

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.dial.goal import Goal
    from gradpivot.loop import Loop

__all__ = ["LineSearch"]

_INFINITE_RISE = 1e6
"""Stands in for a non-finite rise."""


class LineSearch:
    """Measures a model's degree of forgetting and moves it to a target.

    Args:
        model: The original model; its weights are copied.
        goal: What counts as forgotten.
        split: The data to forget and to retain.
        loop: Loads the samples.
        recalibrate: Recomputes BatchNorm statistics; called after every change of the weights, before measuring.
        settings: The dial's constants.
        held_out: Whether the budget bounds the error on validation data instead of the retain loss. An overfitted
            model has a high loss on them, which would hide that it was destroyed.
    """

    def __init__(
        self,
        model: nn.Module,
        goal: Goal,
        split: ForgetSplit,
        loop: Loop,
        recalibrate: Callable[[], None] | None = None,
        settings: DialSettings | None = None,
        *,
        held_out: bool = False,
    ) -> None:
        self._model, self._goal, self._loop, self._recalibrate = model, goal, loop, recalibrate
        self._settings = settings or DialSettings()
        self._task = goal.task
        self._data = split.train
        samples = goal.task.search_samples or self._settings.search_samples
        self._forget = shuffled(split.forget_indices, loop.seed, "landing")[:samples]
        self._reference = split.validation if held_out else split.train
        self._measure = self._error if held_out else self.retain_loss
        kept = split.known_indices(split.validation) if held_out else split.retain_indices
        self._retain = shuffled(kept, loop.seed, "landing")[:samples]
        self._segment = Segment(model)
        self.weight_norm = math.sqrt(
            math.fsum(float(p.detach().double().square().sum()) for p in model.parameters() if p.requires_grad)
        )
        """Norm of the trainable weights before the run."""
        # The first process decides for all: rounding of a single sample could make them disagree.
        self.start = loop.replicas.from_first(self.degree)
        """Degree of forgetting before the run."""
        self._retain_start = loop.replicas.from_first(self._reference_loss)
        self._unit = goal.task.loss_unit * goal.share(self.start)
        own = goal.task.retain_budget
        self.full_budget = self._settings.retain_budget * self._unit if own is None else own
        """Rise of the measured L_r that γ = 1 may cause."""
        if held_out:
            self.full_budget = self._settings.held_out_rise
        self._budget = self.full_budget
        self._degrees: dict[float, float] = {}
        self._at: float | None = None

    @torch.no_grad()
    def degree(self) -> float:
        """Mean degree of forgetting of the current weights over the measured forget samples."""
        # Same random numbers, such as diffusion noise, at every measurement.
        with isolated(derive(self._loop.seed, "landing")):
            degrees = [
                self._goal.degree(self._model, batch).double().sum().item()
                for _, batch in self._passes(self._data, self._forget)
            ]
        return float(np.sum(degrees) / len(self._forget))

    @torch.no_grad()
    def retain_loss(self) -> float:
        """Mean L_r of the current weights over the measured reference samples."""
        with isolated(derive(self._loop.seed, "landing")):
            losses = [
                len(indices) * self._task.retain_loss(self._model, batch).item()
                for indices, batch in self._passes(self._reference, self._retain)
            ]
        return float(np.sum(losses) / len(self._retain))

    @torch.no_grad()
    def _error(self) -> float:
        """Share of reference samples that are misclassified, or the mean uncertainty if the task has no classes."""
        with isolated(derive(self._loop.seed, "landing")):
            wrong = [
                self._wrong(batch).double().sum().item() for _, batch in self._passes(self._reference, self._retain)
            ]
        return float(np.sum(wrong) / len(self._retain))

    def _wrong(self, batch: Any) -> Tensor:
        if not self._task.predicts:
            return self._goal.degree(self._model, batch)
        return ~self._task.predict(self._model, batch).correct.bool()

    def _reference_loss(self) -> float:
        """L_r that the budget is counted from: the original's, or that with new statistics if they raise it.

        Every result has these statistics; a budget that they exceed would return the original.
        """
        loss = self._measure()
        if self._recalibrate is None:
            return loss
        # All buffers, because processes compare them.
        with restored_statistics(self._model):
            self._recalibrate()
            recalibrated = self._measure()
            self._segment.restore_start(self._model)
        return max(loss, recalibrated) if math.isfinite(recalibrated) else loss

    def move_to(self, target: float, *, budget: float = 1.0) -> float:
        """Move the model along the line to a target degree, as far as the retain budget allows.

        The first process decides, so that all end with the same weights.

        Args:
            target: The target degree of forgetting.
            budget: Fraction of the retain-loss budget to spend.

        Returns:
            The position on the line; 0 is the original and 1 the end of the run.
        """
        self._budget = budget * self.full_budget
        self._set_end()
        share = self._loop.replicas.from_first(lambda: self._within_budget(self._find_share(target)))
        self._interpolate(share)
        self.reached = self._loop.replicas.from_first(lambda: self._measured(share))
        """Degree at the position found."""
        return share

    def move_by(self, share: float, *, budget: float = 1.0) -> float:
        """Move the model to a share of the line, as far as the budget allows; see :meth:`move_to`."""
        self._budget = budget * self.full_budget
        self._set_end()
        share = self._loop.replicas.from_first(lambda: self._affordable(share)[0])
        self._interpolate(share)
        self.reached = self._loop.replicas.from_first(lambda: self._measured(share))
        return share

    def _affordable(self, share: float) -> tuple[float, float]:
        """The largest share up to this one within the budget, and the root of its rise."""
        rise = self._rise(share)
        return self._reduce(share, rise) if rise > math.sqrt(self._budget) else (share, rise)

    def _within_budget(self, share: float) -> float:
        """The largest share up to this one that is within the retain budget; 0 if it does not forget anything."""
        share, rise = self._affordable(share)
        # Don't spend retain loss for no gain.
        return share if rise <= 0 or self._measured(share) > self.start else 0.0

    def _reduce(self, share: float, rise: float) -> tuple[float, float]:
        """A smaller share within the retain budget, and the root of its rise in L_r."""
        limit = math.sqrt(self._budget)
        # Aim slightly below the limit, so that points nearby are within budget too.
        aim = self._settings.aim_below * limit
        rises: dict[float, float] = {}

        def rise_at(share: float) -> float:
            rises[share] = self._rise(share)
            return rises[share]

        line = (0.0, 0.0), (share, rise)
        share, rise = false_position(rise_at, aim, between=line, tolerance=0.05 * limit)
        while not (affordable := [s for s in rises if rises[s] <= limit]) and share > self._settings.min_share:
            share = share / 2
            rise_at(share)
        return max((s, rises[s]) for s in affordable) if affordable else (0.0, 0.0)

    def _rise(self, share: float) -> float:
        """Signed square root of the rise of L_r at a share of the line; very large if not finite.

        Near a minimum the loss is quadratic, so its root is linear in the share.
        """
        self._interpolate(share)
        rise = self._measure() - self._retain_start
        return math.copysign(math.sqrt(abs(rise)), rise) if math.isfinite(rise) else _INFINITE_RISE

    def _find_share(self, target: float) -> float:
        one = 1 / len(self._forget) if self._goal.is_discrete else 0.0
        tolerance = max(self._settings.search_tolerance, one) * max(
            self._goal.full - self.start, self._settings.min_gap * self._goal.full
        )
        if target >= 1:
            # Predictions can reach exactly 1, so accept nothing less; a continuous degree may only approach it.
            tolerance = 0.0 if self._task.predicts else tolerance / 2
        reached = self._measured(1.0)
        if reached > target + tolerance:
            # Recalibration alone may forget something, which changes the start of the line.
            start = self._measured(0.0) if self._recalibrate else self.start
            if start >= target:
                return 0.0
            line = (0.0, start), (1.0, reached)
            return false_position(self._measured, target, between=line, tolerance=tolerance)[0]
        if reached < target - tolerance:
            return self._extrapolate(target, tolerance, reached)
        return 1.0

    def _measured(self, share: float) -> float:
        if share not in self._degrees:
            self._interpolate(share)
            self._degrees[share] = self.degree()
        return self._degrees[share]

    def _set_end(self) -> None:
        """Make the current weights the end of the line."""
        self._segment.set_end(self._model)
        self._degrees, self._at = {}, None

    def _interpolate(self, share: float) -> None:
        """Move to a share of the line, unless the model is there; a pass that recomputes statistics is not cheap."""
        if share == self._at:
            return
        self._segment.interpolate(self._model, share)
        if self._recalibrate:
            self._recalibrate()
        self._at = share

    def _extrapolate(self, target: float, tolerance: float, reached: float) -> float:
        """The share above 1 that comes closest to the target, while L_r rises by no more than one step may cause.

        Stops where the degree falls.
        """
        bound = self.retain_loss() + self._settings.retain_tolerance * self._unit
        seen = [(1.0, reached)]
        for share in self._settings.extrapolation if reached > self.start else ():
            degree = self._measured(share)
            if degree < seen[-1][1] or not self.retain_loss() <= bound:
                break
            if degree > target + tolerance:
                between = seen[-1], (share, degree)
                return false_position(
                    self._measured,
                    target,
                    between=between,
                    tolerance=tolerance,
                    max_evaluations=self._settings.extrapolation_evaluations,
                )[0]
            seen.append((share, degree))
            if degree >= target - tolerance:
                break
        # Ties go to the first, which is closest to the end of the run.
        return min(seen, key=lambda found: abs(found[1] - target))[0]

    def _passes(self, data: Any, indices: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
        return self._loop.eval_batches(self._model, data, indices, self._settings.search_batch)
