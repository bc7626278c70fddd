r"""Deletion of records under the dial: a restart, training on retained data, and a line search.

A gradient that pushes single records away leaves a mark of its own: an attacker who repeats the run on shadow models
finds it (docs/results/records.md). So no gradient of L_f is used. At γ = 1 the weights are replaced by new ones and
trained on the retain set until the model is as sure of it as before or the ceiling is reached: a shorter retraining.
What it then knows of the records is what the retained data say about them. A smaller γ is a point on the line between
the original and the end of such a run. There the start is s·θ + (1 − s)·θ_new (shrink and perturb), because the line to
a model that shares nothing with the original has a higher barrier.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from gradpivot.data import shuffled
from gradpivot.dial.dial import Steerable
from gradpivot.dial.goal import Unseen, find_goal, resolve_objective
from gradpivot.dial.line_search import LineSearch
from gradpivot.dial.ramp import target_degree
from gradpivot.dial.settings import DialSettings
from gradpivot.geometry import Weights
from gradpivot.loop import has_batchnorm, has_frozen_batchnorm
from gradpivot.runtime import derive, evaluating, isolated

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["CEILING", "Restart", "Restartable", "restart_epochs"]

CEILING = 0.25
"""Passes over the retain set as a fraction of training's; with the measurements about a third of its time."""
_UNMEASURED = 0.5
"""Fraction of the passes after which a run may end early."""


def restart_epochs(training_epochs: int) -> int:
    """Passes over the retain set that a deletion may take."""
    return max(1, round(CEILING * training_epochs))


class Restartable(Steerable, Protocol):
    """What a restart needs from a method; of the objective it only uses the measure of uncertainty."""

    @property
    def shrink(self) -> float | None:
        """Fraction of the original weights that is kept."""
        ...

    @property
    def training_epochs(self) -> int | None:
        """Epochs the original was trained for."""
        ...

    @property
    def training_lr(self) -> float | None:
        """Peak learning rate the original was trained with."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Training:
    """The recipe of the passes over the retain set."""

    lr: float
    epochs: int
    batch_size: int | None
    augment: str | None
    weight_decay: float
    batchnorm: str
    max_norm: float | None
    optimizer: str
    retain_batch_size: int | None = None
    momentum: float = 0.9
    # Starts slowly: the first batches after a restart have long gradients.
    schedule: str = "one_cycle"


class Restart:
    """Deletes records to the degree that γ sets.

    Args:
        method: Settings.
        model: The original model; changed in place.
        task: Runs the model on a batch.
        split: The records to forget, the data to retain, and held-out data.
        loop: The run.
        settings: Constants.
    """

    def __init__(
        self,
        method: Restartable,
        model: nn.Module,
        task: Task,
        split: ForgetSplit,
        loop: Loop,
        settings: DialSettings | None = None,
    ) -> None:
        assert method.gamma is not None
        self._method, self._model, self._task, self._split, self._loop = method, model, task, split, loop
        self._settings = settings = settings or DialSettings()
        objective = resolve_objective(method.objective, split.kind, task)
        goal = find_goal("unseen", objective, model, task, split, loop, settings)
        assert isinstance(goal, Unseen)
        self._goal, self._recipe = goal, self._training()
        recalibrate = None
        if self._recipe.batchnorm == "recalibrate":
            recalibrate = partial(loop.recalibrate, model, task, split, self._recipe)
        # Nothing beyond the end of training: how far to go there would be read off the records.
        on_the_line = replace(settings, extrapolation=())
        self._search = LineSearch(model, goal, split, loop, recalibrate, on_the_line, held_out=True)
        self._learned = shuffled(split.retain_indices, loop.seed, "restart")[: settings.search_samples]
        self._epoch, self._level, self._erased = -1, math.inf, False
        self._before = 0.0

    def _training(self) -> _Training:
        method, model = self._method, self._model
        # Adam's steps are as long as the rate says, however gradients are clipped.
        rate = self._settings.restart_rate if method.optimizer == "sgd" else 1.0
        return _Training(
            lr=rate * (method.training_lr or self._settings.training_lr),
            epochs=restart_epochs(method.training_epochs or self._settings.training_epochs),
            batch_size=method.retain_batch_size or self._settings.restart_batch,
            augment=method.augment,
            optimizer=method.optimizer,
            weight_decay=method.weight_decay,
            # A restarted model has other features, and the old statistics do not describe them.
            batchnorm="recalibrate" if has_batchnorm(model) and not has_frozen_batchnorm(model) else "frozen",
            max_norm=method.max_norm or self._settings.restart_max_norm,
        )

    def run(self) -> None:
        """Restart, train, and move to the target degree."""
        if self._method.gamma == 0:
            return
        self._before = self._retain_uncertainty()
        self._say_what_is_assumed()
        self._loop.attach(self)
        self._loop.shrink_and_perturb(self._model, self._shrink)
        self._erased = self._is_erased()
        self._train(self._before + self._settings.repair_gap)
        self._finish()

    def _say_what_is_assumed(self) -> None:
        names = ("training_epochs", "training_lr")
        unset = [f"{name} {getattr(self._settings, name):g}" for name in names if getattr(self._method, name) is None]
        if unset:
            self._loop.note(f"assumed {' and '.join(unset)}: set them to how the original was trained")

    def _is_erased(self) -> bool:
        """Whether the weights before training know nothing of the records.

        Frozen weights may, and so may those of a factory that returns a trained model.
        """
        frozen = any(not parameter.requires_grad for parameter in self._model.parameters())
        start = self._loop.replicas.from_first(self._degree)
        return not frozen and start >= self._goal.full - self._noise()

    def _degree(self) -> float:
        with evaluating(self._model):
            return self._search.degree()

    @property
    def _shrink(self) -> float:
        if self._method.shrink is not None:
            return self._method.shrink
        assert self._method.gamma is not None
        return 0.0 if math.isclose(self._method.gamma, 1) else self._settings.shrink

    def _train(self, tolerated: float) -> None:
        """Train until the mean uncertainty about the retain set is at most ``tolerated``, or the ceiling is reached."""
        model, task, split, loop = self._model, self._task, self._split, self._loop
        batches = loop.batches(model, task, split.train, split.retain_indices, self._recipe, order=self._pass)
        for batch in batches:
            if self._level <= tolerated:
                loop.end_early()
                break
            gradients = loop.gradients(retain=partial(task.retain_loss, model, batch.data))
            loop.step(gradients, Weights(0.0, 1.0), measured=False)
            loop.record(asked=None, reached=None, start=self._search.start, most=None, landed=None)
        else:
            self._level = self._retain_uncertainty()
        loop.recalibrate(model, task, split, self._recipe)
        if self._level > tolerated:
            loop.note(
                f"the run took its {self._recipe.epochs} passes over the retained data and is less sure of them than "
                f"the original (mean uncertainty {100 * self._level:.1f} %, {100 * self._before:.1f} % before): the "
                f"price of a short run; more training_epochs lower it"
            )

    def _pass(self, epoch: int) -> NDArray[np.int64]:
        """The samples of a pass over the retain set; before the later ones, how unsure the model is of them."""
        if epoch >= _UNMEASURED * self._recipe.epochs and self._epoch != epoch:
            self._epoch, self._level = epoch, self._retain_uncertainty()
        return shuffled(self._split.retain_indices, self._loop.seed, "restart", epoch)

    def _retain_uncertainty(self) -> float:
        """The model's mean uncertainty 1 − p_θ(y|x) about samples of the retain set, in eval mode."""

        @torch.no_grad()
        def measure() -> float:
            with isolated(derive(self._loop.seed, "restart")), evaluating(self._model):
                batches = self._loop.eval_batches(
                    self._model, self._split.train, self._learned, self._settings.search_batch
                )
                found = [self._goal.degree(self._model, batch).double() for _, batch in batches]
            return float(torch.cat(found).mean())

        return self._loop.replicas.from_first(measure)

    def _finish(self) -> None:
        """Line search to the degree that γ sets, as a fraction of the way from the start to the end of the run."""
        assert self._method.gamma is not None
        fraction, start = target_degree(self._method.gamma), self._search.start
        budget = 1.0 if self._method.budget is None else self._method.budget
        end = self._loop.replicas.from_first(self._search.degree)
        # Easy records may be surer than held-out data, unless the weights still know them.
        full = end if self._erased or end >= self._goal.full - self._noise() else self._goal.full
        asked = start + (full - start) * fraction
        if full - start > self._settings.repair_gap:
            landed = self._search.move_to(asked, budget=budget)
        else:
            # Records that the model is as unsure of as before, hard ones too: no degree to search for on the line.
            landed = self._search.move_by(fraction, budget=budget)
            asked = self._search.reached
        self._loop.record(asked=asked, reached=self._search.reached, start=start, most=full, landed=landed)

    def _noise(self) -> float:
        """Two standard errors of the mean uncertainty of as many held-out samples as there are records."""
        return 2 * self._goal.spread / math.sqrt(len(self._split.forget_indices))

    def state_dict(self) -> dict[str, Any]:
        """State that the next step depends on."""
        return {"epoch": self._epoch, "level": self._level}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from :meth:`state_dict`."""
        self._epoch, self._level = state["epoch"], state["level"]
