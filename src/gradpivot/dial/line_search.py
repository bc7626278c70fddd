"""The line search: after a run, the point on the line to the original at which the forget set is forgotten as asked.

A run steers by batches, which tell a share to within a few points. Here it is measured on the forget set itself,
without augmentation, and the weights move along the line between the original and the run until it is right. That
takes forward passes alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gradpivot.data import shuffled
from gradpivot.dial.segment import Segment, share_with
from gradpivot.dial.settings import DialSettings
from gradpivot.runtime import derive, isolated

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.dial.goal import Goal
    from gradpivot.loop import Loop

__all__ = ["LineSearch"]

_UNAFFORDABLE = 1e6
"""Stands for a rise that is no number."""


class LineSearch:
    """Measures the degree of forgetting of a model, and brings it to the one that was asked for.

    Args:
        model: The model before the run; its weights are copied.
        goal: What counts as forgotten.
        split: What is forgotten.
        loop: Gives the samples.
        settle: Called whenever the weights have moved, before they are measured: recomputes BatchNorm's statistics
            where the policy says so, so that what they change is part of what is measured.
        settings: The dial's constants.
    """

    def __init__(
        self,
        model: nn.Module,
        goal: Goal,
        split: ForgetSplit,
        loop: Loop,
        settle: Callable[[], None] | None = None,
        settings: DialSettings | None = None,
    ) -> None:
        self._model, self._goal, self._loop, self._settle = model, goal, loop, settle
        self._use = settings or DialSettings()
        self._task = goal.task
        self._data = split.train
        self._forget = shuffled(split.forget_indices, loop.seed, "landing")[: self._use.search_samples]
        self._retain = shuffled(split.retain_indices, loop.seed, "landing")[: self._use.search_samples]
        self._segment = Segment(model)
        self.weights_length = math.sqrt(
            math.fsum(float(p.detach().double().square().sum()) for p in model.parameters() if p.requires_grad)
        )
        """‖θ‖ of the trainable weights before the run."""
        # Of several processes the first says it: one sample that they round differently would make them diverge.
        self.start = loop.replicas.from_first(self.degree)
        """The degree of forgetting before the run."""
        self._retain_start = loop.replicas.from_first(self.retain_loss)
        self._unit = goal.task.loss_unit * goal.share(self.start)
        own = goal.task.retain_budget
        self._retain_budget = self._use.retain_budget * self._unit if own is None else own
        self._budget = self._retain_budget
        self._degrees: dict[float, float] = {}

    @torch.no_grad()
    def degree(self) -> float:
        """The mean degree of forgetting of the model as it is, over the measured forget samples."""
        # What a task draws, such as noise, is the same at every measurement.
        with isolated(derive(self._loop.seed, "landing")):
            degrees = [
                self._goal.degree(self._model, batch).double().sum().item() for _, batch in self._passes(self._forget)
            ]
        return float(np.sum(degrees) / len(self._forget))

    @torch.no_grad()
    def retain_loss(self) -> float:
        """The mean L_r of the model as it is, over the measured retain samples."""
        with isolated(derive(self._loop.seed, "landing")):
            losses = [
                len(indices) * self._task.retain_loss(self._model, batch).item()
                for indices, batch in self._passes(self._retain)
            ]
        return float(np.sum(losses) / len(self._retain))

    def land(self, asked: float, *, budget: float = 1.0) -> float:
        """Move the model to where its degree is ``asked``; the share of the line that it then is on.

        It stops short of that where L_r would cost more than it may: what is kept comes first.

        Of several processes the first decides, and the weights are the same in all of them.

        Args:
            asked: The degree of forgetting to land on.
            budget: Fraction of the retain-loss budget that may be spent.
        """
        self._budget, self._degrees = budget * self._retain_budget, {}
        self._segment.ends_at(self._model)
        share = self._loop.replicas.from_first(lambda: self._affordable(self._share(asked)))
        self._put(share)
        self.reached = self._loop.replicas.from_first(lambda: self._measured(share))
        """The degree there."""
        return share

    def _affordable(self, share: float) -> float:
        """The share, or the nearest before it that costs L_r no more than it may; 0 if that gains nothing."""
        rise = self._rise(share)
        if rise > math.sqrt(self._budget):
            share, rise = self._cheaper(share, rise)
        # Don't spend retain loss for no gain.
        return share if rise <= 0 or self._measured(share) > self.start else 0.0

    def _cheaper(self, share: float, rise: float) -> tuple[float, float]:
        """A share before ``share`` at which L_r has risen by no more than it may, and the root of that rise."""
        most = math.sqrt(self._budget)
        # Statistics taken anew may cost something by themselves.
        start = self._rise(0.0) if self._settle else 0.0
        # A little less than it may, so that what is found near there is below, too.
        aim = self._use.aim_below * most
        if start >= aim:
            return 0.0, 0.0
        looks: dict[float, float] = {}

        def rise_at(place: float) -> float:
            looks[place] = self._rise(place)
            return looks[place]

        line = (0.0, start), (share, rise)
        share, rise = share_with(rise_at, aim, between=line, tolerance=0.05 * most)
        while not (affordable := [place for place in looks if looks[place] <= most]) and share > self._use.min_share:
            share = share / 2
            rise_at(share)
        return max((place, looks[place]) for place in affordable) if affordable else (0.0, 0.0)

    def _rise(self, share: float) -> float:
        """The root of what L_r has risen by at a share of the line; far above all if that is no number.

        Near a minimum a loss is quadratic, so that its root is what rises evenly.
        """
        self._put(share)
        rise = self.retain_loss() - self._retain_start
        return math.copysign(math.sqrt(abs(rise)), rise) if math.isfinite(rise) else _UNAFFORDABLE

    def _share(self, asked: float) -> float:
        one = 1 / len(self._forget) if self._goal.counts else 0.0
        near = max(self._use.search_tolerance, one) * max(
            self._goal.full - self.start, self._use.min_gap * self._goal.full
        )
        if asked >= 1:
            # There is nothing beyond all of it that could make up for a sample too few; a degree that is no count may
            # never be quite 1.
            near = 0.0 if self._task.predicts else near / 2
        reached = self._measured(1.0)
        if reached > asked + near:
            # Statistics taken anew may be enough to forget by: the line then begins elsewhere.
            start = self._measured(0.0) if self._settle else self.start
            if start >= asked:
                return 0.0
            line = (0.0, start), (1.0, reached)
            return share_with(self._measured, asked, between=line, tolerance=near)[0]
        if reached < asked - near:
            return self._beyond(asked, near, reached)
        return 1.0

    def _measured(self, share: float) -> float:
        if share not in self._degrees:
            self._put(share)
            self._degrees[share] = self.degree()
        return self._degrees[share]

    def _put(self, share: float) -> None:
        self._segment.put(self._model, share)
        if self._settle:
            self._settle()

    def _beyond(self, asked: float, near: float, reached: float) -> float:
        """The share beyond 1 that comes nearest to ``asked``, as long as its weights cost L_r no more than a step may.

        It ends where the degree falls: a line that leads away leads nowhere.
        """
        bound = self.retain_loss() + self._use.retain_tolerance * self._unit
        seen = [(1.0, reached)]
        for share in self._use.extrapolation if reached > self.start else ():
            degree = self._measured(share)
            if degree < seen[-1][1] or not self.retain_loss() <= bound:
                break
            if degree > asked + near:
                between = seen[-1], (share, degree)
                return share_with(
                    self._measured, asked, between=between, tolerance=near, looks=self._use.extrapolation_looks
                )[0]
            seen.append((share, degree))
            if degree >= asked - near:
                break
        # Of equal ones the first: it is the least way from where the run ended.
        return min(seen, key=lambda found: abs(found[1] - asked))[0]

    def _passes(self, indices: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
        return self._loop.pass_over(self._model, self._data, indices, self._use.search_batch)
