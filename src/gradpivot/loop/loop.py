"""Around the steps of a run: batches, clock, checkpoints, what is prepared before and put in order after them."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from gradpivot.data import Loader, cut, shuffled
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.loop.batches import (
    Batch,
    PairedBatch,
    Plan,
    forget_batch_size,
    forget_plan,
    paired_plan,
    plain_batch_size,
    plain_plan,
    retain_batch_size,
    sequential_plan,
)
from gradpivot.loop.checkpoint import Checkpoint
from gradpivot.loop.gradients import single_samples_refused
from gradpivot.loop.history import History
from gradpivot.loop.motion import Descending
from gradpivot.loop.normalisation import (
    apply_policy,
    has_batch_statistics,
    recalibrate_over,
    running_statistics,
    statistics_kept,
)
from gradpivot.loop.optimizers import DescentRecipe
from gradpivot.loop.outcome import Diverged, ModelFactory, Outcome, RunnableMethod, Stateful
from gradpivot.loop.precision import Passes
from gradpivot.loop.saliency import saliency_mask
from gradpivot.loop.stepping import Stepping
from gradpivot.models import reinitialise
from gradpivot.runtime import derive, isolated, reseed

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.tasks import Task

__all__ = ["Loop"]

_LEAST_SURVEYED, _MOST_SURVEYED = 128, 1000


@dataclass(kw_only=True)
class Loop(Stepping):
    """Runs one method once.

    Attributes:
        seed: Decides the order of batches, dropout, augmentation and new initialisations.
        workers: Data-loading processes; never changes a number.
        factory: Makes a new, randomly initialised model, for methods that start over.
        progress: Called after every step.
        checkpoint: Where to keep a resumable state, or None.
        checkpoint_seconds: How often to write it.
        precision: The number format of the losses' passes, one of :data:`gradpivot.loop.precision.PRECISIONS`.
        compile: Whether ``torch.compile`` makes their code.
        replicas: The processes that run the method together, each on its part of every batch: those of the process
            group if there is one, else this one alone.
    """

    factory: ModelFactory | None = None
    checkpoint: Path | None = None
    checkpoint_seconds: float = 10.0
    precision: str = "float32"
    compile: bool = False
    _keeper: Checkpoint | None = field(default=None, init=False)
    _note: str | None = field(default=None, init=False)
    _attached: Stateful | None = field(default=None, init=False)

    def run(
        self, method: RunnableMethod, model: nn.Module, task: Task, split: ForgetSplit, *, key: str = ""
    ) -> Outcome:
        """Run ``method`` on a copy of ``model``; the original, its modes and the caller's randomness stay.

        Args:
            method: What to run.
            model: The trained model.
            task: How to run it on a batch.
            split: What to forget.
            key: Identifies the run in its checkpoint, so that another run's is never resumed.
        """
        self.replicas.agree("runs", (key, self.seed, self.checkpoint is not None))
        working = copy.deepcopy(model)
        modes = [module.training for module in model.modules()]
        self._history, self._step = History(), 0
        self._seen_alike, self._note, self._attached = False, None, None
        self._descent, self._move, self._mask = None, None, None
        self._keeper = Checkpoint(self.checkpoint, key, self.checkpoint_seconds) if self.checkpoint else None
        self._passes = Passes(working, self.precision, self.compile)
        started = time.perf_counter()
        diverged = None
        with isolated(derive(self.seed, "run")):
            try:
                method.unlearn(working, task, split, self)
            except Diverged as stop:
                diverged = {"step": stop.step, "reason": stop.reason}
        seconds = time.perf_counter() - started + (self._keeper.seconds_before if self._keeper else 0.0)
        for module, training in zip(working.modules(), modes, strict=True):
            module.training = training
        working.zero_grad(set_to_none=True)
        self._passes.release()
        self.replicas.same_weights(working)
        return Outcome(
            model=working, history=self._history.columns(), seconds=seconds, diverged=diverged, note=self._note
        )

    def note(self, told: str) -> None:
        """Have people told why a run is not what they would expect."""
        self._note = told

    def attach(self, part: Stateful) -> None:
        """Checkpoint a part of the method's own with the run; call it before the first batch."""
        self._attached = part

    def initialise(self, model: nn.Module) -> None:
        """Give ``model`` new random weights that depend on the seed only."""
        reseed(derive(self.seed, "initialisation"))
        reinitialise(model, self.factory)

    def paired_batches(
        self, model: nn.Module, task: Task, split: ForgetSplit, recipe: DescentRecipe
    ) -> Iterator[PairedBatch]:
        """Every forget sample once an epoch, each batch beside a fresh slice of the retain set."""
        plan, loader = paired_plan(split, recipe, self.seed), self._loader(split.train, model)
        self._mask_if_asked(model, task, split, recipe, loader)
        for indices, (forget, retain) in self._steps(model, recipe, plan, loader):
            yield PairedBatch(forget, retain, plan.progress(self._step), indices[0])
        self.recalibrate(model, task, split, recipe)

    def forget_batches(
        self, model: nn.Module, task: Task, split: ForgetSplit, recipe: DescentRecipe
    ) -> Iterator[Batch]:
        """Every forget sample once an epoch, as in :meth:`paired_batches`, for a method that looks at nothing else."""
        yield from self._one_sided(model, task, split, recipe, forget_plan(split, recipe, self.seed))

    def sequential_batches(
        self, model: nn.Module, task: Task, split: ForgetSplit, recipe: DescentRecipe
    ) -> Iterator[Batch]:
        """Every forget sample once an epoch, then every retain sample once: a step for each batch."""
        yield from self._one_sided(model, task, split, recipe, sequential_plan(split, recipe, self.seed))

    def _one_sided(
        self, model: nn.Module, task: Task, split: ForgetSplit, recipe: DescentRecipe, plan: Plan
    ) -> Iterator[Batch]:
        loader = self._loader(split.train, model)
        self._mask_if_asked(model, task, split, recipe, loader)
        for (indices,), (data,) in self._steps(model, recipe, plan, loader):
            forgets = plan.forgets(self._step)
            yield Batch(data, plan.progress(self._step), forgets=forgets, indices=indices)
        self.recalibrate(model, task, split, recipe)

    def batches(
        self, model: nn.Module, task: Task, dataset: Any, indices: np.ndarray, recipe: DescentRecipe
    ) -> Iterator[Batch]:
        """Plain shuffled batches of some samples of ``dataset``, for training."""
        plan, loader = plain_plan(indices, recipe, self.seed), self._loader(dataset, model)
        for _, (data,) in self._steps(model, recipe, plan, loader):
            yield Batch(data, plan.progress(self._step), ends_epoch=plan.ends_epoch(self._step))
        self._running.take_average()
        self._recalibrate_if_asked(model, task, dataset, indices, recipe, plain_batch_size(recipe))

    def recalibrate(self, model: nn.Module, task: Task, split: ForgetSplit, recipe: DescentRecipe) -> None:
        """Take BatchNorm's statistics from retain data if the policy is ``recalibrate``.

        After the last step; and once more for a method that changes weights after that.
        """
        size = forget_batch_size(split, recipe)
        self._recalibrate_if_asked(model, task, split.train, split.retain_indices, recipe, size)

    def retain_level(self, model: nn.Module, task: Task, split: ForgetSplit, recipe: DescentRecipe) -> float:
        """The mean L_r of the model as it is, as the retain batches of a paired run show it: augmented, in its mode.

        Over a quarter as many samples as the run will see, but 128 at least and 1000 at most. No step is counted, and
        running statistics stay what they are.
        """

        def loss(batch: Any) -> float:
            return self._passes.loss(partial(task.retain_loss, model, batch))

        size = retain_batch_size(split, recipe)
        chosen = self._surveyed(split, recipe, split.retain_indices, size)
        return self.replicas.from_first(partial(self._survey, model, split, recipe, chosen, size, loss))

    def forget_shift(
        self,
        model: nn.Module,
        split: ForgetSplit,
        recipe: DescentRecipe,
        seen: Callable[[Any], float],
        plain: Callable[[Any], float],
    ) -> float:
        """How much more of something forget batches show in a run than the same samples do by themselves, on average.

        Augmentation and dropout are in the one and not in the other.

        Args:
            model: As it is.
            split: What is forgotten.
            recipe: Says how batches are made.
            seen: From a batch as a run has it to the mean over it.
            plain: From one of the samples as they are, in eval mode.
        """
        size = forget_batch_size(split, recipe)

        @torch.no_grad()
        def shift() -> float:
            chosen = self._surveyed(split, recipe, split.forget_indices, size)
            looks = self.pass_over(model, split.train, chosen, max(size, _LEAST_SURVEYED))
            with isolated(derive(self.seed, "level")):
                alone = math.fsum(len(part) * plain(batch) for part, batch in looks) / len(chosen)
            return self._survey(model, split, recipe, chosen, size, seen) - alone

        return self.replicas.from_first(shift)

    def _surveyed(self, split: ForgetSplit, recipe: DescentRecipe, indices: np.ndarray, size: int) -> np.ndarray:
        """The samples that stand for all of a run."""
        in_run = size * paired_plan(split, recipe, self.seed).total
        looked_at = min(max(in_run // 4, _LEAST_SURVEYED), _MOST_SURVEYED)
        return shuffled(indices, self.seed, "level")[:looked_at]

    @torch.no_grad()
    def _survey(
        self,
        model: nn.Module,
        split: ForgetSplit,
        recipe: DescentRecipe,
        chosen: np.ndarray,
        size: int,
        measure: Callable[[Any], float],
    ) -> float:
        """The mean of a measure over some samples as a run shows them."""
        apply_policy(model, recipe.batchnorm)
        # The size matters to BatchNorm alone; larger batches are faster.
        order = cut(chosen, size if has_batch_statistics(model) else max(size, _LEAST_SURVEYED))
        batches = self._loader(split.train, model).batches(order, 0, recipe.augment)
        with isolated(derive(self.seed, "level")), statistics_kept(model), single_samples_refused():
            found = [len(part) * measure(batch) for part, batch in zip(order, batches, strict=True)]
        return math.fsum(found) / len(chosen)

    def _steps(
        self, model: nn.Module, recipe: DescentRecipe, plan: Plan, loader: Loader
    ) -> Iterator[tuple[tuple[np.ndarray, ...], tuple[Any, ...]]]:
        """(Indices, data) of each step by side, of several processes this one's part of them."""
        self._begin(model, recipe, plan)
        for epoch, sides in plan.epochs_from(self._step):
            parts = zip(*([self.replicas.part(len(batch)) for batch in side] for side in sides), strict=True)
            mine = [[self.replicas.take(batch) for batch in side] for side in sides]
            data = zip(*(loader.batches(side, epoch, recipe.augment) for side in mine), strict=True)
            for part, indices, batch in zip(parts, zip(*mine, strict=True), data, strict=True):
                self._parts, self._at_hand = (part[0], part[-1]), (indices, batch)
                reseed(derive(self.seed, "step", self._step))
                yield indices, batch
                self._advance(plan.total, model)

    def _begin(self, model: nn.Module, recipe: DescentRecipe, plan: Plan) -> None:
        apply_policy(model, recipe.batchnorm)
        self._refuse_single_samples(model, plan.smallest)
        self._statistics = running_statistics(model)
        self._descent = Descending(model, recipe, plan.total)
        if self._keeper and (state := self.replicas.from_first(self._keeper.load)):
            self._descent.load_state_dict(state["descent"])
            self._history, self._step = History(state["history"]), state["step"]
            self._passes.load_state_dict(state["passes"])
            if self._attached is not None:
                self._attached.load_state_dict(state["attached"])
        self._report(self._step, plan.total)

    def _advance(self, total: int, model: nn.Module) -> None:
        self._step += 1
        self._report(self._step, total)
        if self._keeper and self.replicas.is_first:
            self._keeper.save_if_due(self._state)
        # Replicas that drift apart do so from their first step; told there, it has cost nothing yet.
        if not self._seen_alike:
            self.replicas.same_weights(model)
            self._seen_alike = True

    def _state(self) -> dict[str, Any]:
        """Everything the next step depends on."""
        return {
            "descent": self._running.state_dict(),
            "history": self._history.rows,
            "step": self._step,
            "passes": self._passes.state_dict(),
            "attached": None if self._attached is None else self._attached.state_dict(),
        }

    def _mask_if_asked(
        self, model: nn.Module, task: Task, split: ForgetSplit, recipe: DescentRecipe, loader: Loader
    ) -> None:
        """Keep to the salient weights if the recipe has a ``saliency``.

        Before a checkpoint is loaded: a resumed run computes the same mask, from the original weights.
        """
        share = getattr(recipe, "saliency", None)
        if share is None:
            return
        order = cut(split.forget_indices, forget_batch_size(split, recipe))
        reseed(derive(self.seed, "saliency"))
        batches = zip(loader.batches(order, -1), map(len, order), strict=True)
        try:
            self.restrict(model, saliency_mask(model, task, batches, share))
        except NonFiniteError as error:
            raise Diverged(self._step, str(error)) from None

    def _recalibrate_if_asked(
        self, model: nn.Module, task: Task, dataset: Any, indices: np.ndarray, recipe: DescentRecipe, size: int
    ) -> None:
        if recipe.batchnorm == "recalibrate":
            recalibrate_over(
                model, dataset, indices, task.retain_loss, batch_size=size, seed=self.seed, workers=self.workers
            )

    def _refuse_single_samples(self, model: nn.Module, smallest: int) -> None:
        """Raise, in all processes alike, if BatchNorm in train mode would see a part of fewer than two samples."""
        several = self.replicas.size > 1
        if several and has_batch_statistics(model) and smallest < 2 * self.replicas.size:
            raise GradPivotError(
                f"the smallest batch has {smallest} samples, and BatchNorm in train mode needs two in each of the "
                f"{self.replicas.size} processes; use batchnorm='frozen', another batch_size, or fewer processes"
            )
