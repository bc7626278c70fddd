"""The run loop: batches, timing, checkpoints, preparation and clean-up."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Collection, Iterator
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
from gradpivot.loop.history import History
from gradpivot.loop.motion import RevertibleOptimizer
from gradpivot.loop.normalisation import (
    apply_policy,
    has_batch_statistics,
    preserved_statistics,
    recalibrate_over,
    restored_statistics,
    running_statistics,
)
from gradpivot.loop.optimizers import DescentRecipe
from gradpivot.loop.outcome import Diverged, ModelFactory, Outcome, RunnableMethod, Stateful
from gradpivot.loop.precision import Passes, explain_single_samples
from gradpivot.loop.saliency import saliency_mask
from gradpivot.loop.stepping import Stepping
from gradpivot.models import reinitialise, shrink_and_perturb
from gradpivot.runtime import derive, isolated, reseed

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.tasks import Task

__all__ = ["Loop"]

_MIN_SAMPLES, _MAX_SAMPLES = 128, 1000


@dataclass(kw_only=True)
class Loop(Stepping):
    """Runs one method once.

    Attributes:
        seed: Seeds batch order, dropout, augmentation and initialisation.
        workers: Data-loading processes; does not affect results.
        factory: Creates a randomly initialised model, for methods that train from scratch.
        progress: Called after every step.
        checkpoint: Checkpoint file, or None.
        checkpoint_seconds: Interval between checkpoints.
        precision: Precision of forward and backward passes, one of :data:`gradpivot.loop.precision.PRECISIONS`.
        compile: Whether to use ``torch.compile``.
        replicas: The data-parallel processes. Default: the current process group, or this process alone.
    """

    factory: ModelFactory | None = None
    checkpoint: Path | None = None
    checkpoint_seconds: float = 10.0
    precision: str = "float32"
    compile: bool = False
    _checkpointer: Checkpoint | None = field(default=None, init=False)
    _note: str | None = field(default=None, init=False)
    _total: int = field(default=0, init=False)
    _attached: Stateful | None = field(default=None, init=False)

    def run(
        self, method: RunnableMethod, model: nn.Module, task: Task, split: ForgetSplit, *, key: str = ""
    ) -> Outcome:
        """Run ``method`` on a copy of ``model``; the original and the caller's random state are unchanged.

        Args:
            method: The method.
            model: The trained model.
            task: Runs the model on a batch.
            split: The data to forget and to retain.
            key: Identifies the run in its checkpoint; a checkpoint with another key is refused.
        """
        self.replicas.check_equal("runs", (key, self.seed, self.checkpoint is not None))
        working = copy.deepcopy(model)
        modes = [module.training for module in model.modules()]
        self._history, self._step = History(), 0
        self._replicas_checked, self._note, self._attached = False, None, None
        self._descent, self._move, self._mask = None, None, None
        self._checkpointer = Checkpoint(self.checkpoint, key, self.checkpoint_seconds) if self.checkpoint else None
        self._passes = Passes(working, self.precision, self.compile)
        started = time.perf_counter()
        diverged = None
        with isolated(derive(self.seed, "run")):
            try:
                method.unlearn(working, task, split, self)
            except Diverged as stop:
                diverged = {"step": stop.step, "reason": stop.reason}
        seconds = time.perf_counter() - started + (self._checkpointer.seconds_before if self._checkpointer else 0.0)
        for module, training in zip(working.modules(), modes, strict=True):
            module.training = training
        working.zero_grad(set_to_none=True)
        self._passes.release()
        self.replicas.check_weights(working)
        return Outcome(
            model=working, history=self._history.columns(), seconds=seconds, diverged=diverged, note=self._note
        )

    def note(self, text: str) -> None:
        """Attach a note for the user to the outcome, after earlier ones."""
        self._note = text if self._note is None else f"{self._note}; {text}"

    def end_early(self) -> None:
        """Report the run as complete; call before leaving the loop over its batches."""
        self._report(self._total, self._total)

    def attach(self, part: Stateful) -> None:
        """Include a stateful part of the method in checkpoints; call before the first batch."""
        self._attached = part

    def initialise(self, model: nn.Module, only: Collection[str] | None = None) -> None:
        """Re-initialise ``model`` from the seed, or only the named modules."""
        reseed(derive(self.seed, "initialisation"))
        reinitialise(model, self.factory, only)

    def shrink_and_perturb(self, model: nn.Module, shrink: float) -> None:
        """Replace a part 1 − ``shrink`` of the trainable weights by newly initialised ones."""
        # Other weights than those that training from the same seed starts with: the original may have.
        reseed(derive(self.seed, "restart"))
        shrink_and_perturb(model, self.factory, shrink)

    def paired_batches(
        self, model: nn.Module, task: Task, split: ForgetSplit, recipe: DescentRecipe
    ) -> Iterator[PairedBatch]:
        """Each forget sample once per epoch, each batch paired with a new slice of the retain set."""
        plan, loader = paired_plan(split, recipe, self.seed), self._loader(split.train, model)
        self._apply_saliency(model, task, split, recipe, loader)
        for indices, (forget, retain) in self._steps(model, recipe, plan, loader):
            yield PairedBatch(forget, retain, plan.progress(self._step), indices[0])
        self.recalibrate(model, task, split, recipe)

    def forget_batches(
        self, model: nn.Module, task: Task, split: ForgetSplit, recipe: DescentRecipe
    ) -> Iterator[Batch]:
        """Each forget sample once per epoch, in the same batches as :meth:`paired_batches`, without retain samples."""
        yield from self._one_sided(model, task, split, recipe, forget_plan(split, recipe, self.seed))

    def sequential_batches(
        self, model: nn.Module, task: Task, split: ForgetSplit, recipe: DescentRecipe
    ) -> Iterator[Batch]:
        """Per epoch, each forget sample once, then each retain sample once; one step per batch."""
        yield from self._one_sided(model, task, split, recipe, sequential_plan(split, recipe, self.seed))

    def _one_sided(
        self, model: nn.Module, task: Task, split: ForgetSplit, recipe: DescentRecipe, plan: Plan
    ) -> Iterator[Batch]:
        loader = self._loader(split.train, model)
        self._apply_saliency(model, task, split, recipe, loader)
        for (indices,), (data,) in self._steps(model, recipe, plan, loader):
            yield self._batch(plan, data, indices)
        self.recalibrate(model, task, split, recipe)

    def _batch(self, plan: Plan, data: Any, indices: np.ndarray | None = None) -> Batch:
        """The current step's batch."""
        return Batch(
            data,
            plan.progress(self._step),
            forgets=plan.forgets(self._step),
            ends_epoch=plan.ends_epoch(self._step),
            epoch=plan.epoch(self._step),
            indices=indices,
        )

    def batches(
        self,
        model: nn.Module,
        task: Task,
        dataset: Any,
        indices: np.ndarray,
        recipe: DescentRecipe,
        *,
        order: Callable[[int], np.ndarray] | None = None,
    ) -> Iterator[Batch]:
        """Shuffled batches of the given samples, for ordinary training.

        Args:
            model: The model.
            task: Runs the model on a batch.
            dataset: The training set.
            indices: The samples.
            recipe: Describes the batches.
            order: Returns the samples of an epoch, as many as ``indices``; called when it starts, and again if the run
                is resumed within it. By default all samples in random order.
        """
        plan, loader = plain_plan(indices, recipe, self.seed, order), self._loader(dataset, model)
        for _, (data,) in self._steps(model, recipe, plan, loader):
            yield self._batch(plan, data)
        self._running.load_average()
        self._maybe_recalibrate(model, task, dataset, indices, recipe, plain_batch_size(recipe))

    def recalibrate(self, model: nn.Module, task: Task, split: ForgetSplit, recipe: DescentRecipe) -> None:
        """Recompute BatchNorm statistics on retain data if the policy is ``recalibrate``.

        Runs after the last step; call it again after changing weights later.
        """
        size = forget_batch_size(split, recipe)
        self._maybe_recalibrate(model, task, split.train, split.retain_indices, recipe, size)

    def retain_level(self, model: nn.Module, task: Task, split: ForgetSplit, recipe: DescentRecipe) -> float:
        """Mean L_r of the current model on retain batches of a paired run, with augmentation and in train mode.

        Uses a quarter of the run's samples, but at least 128 and at most 1000. Running statistics are preserved.
        """

        def loss(batch: Any) -> float:
            return self._passes.loss(partial(task.retain_loss, model, batch))

        size = retain_batch_size(split, recipe)
        chosen = self._sample_of_run(split, recipe, split.retain_indices, size)
        return self.replicas.from_first(partial(self._mean_in_run, model, split, recipe, chosen, size, loss))

    def forget_shift(
        self,
        model: nn.Module,
        split: ForgetSplit,
        recipe: DescentRecipe,
        in_run: Callable[[Any], float],
        plain: Callable[[Any], float],
    ) -> float:
        """Mean difference of a measure between training batches and the same samples in eval mode.

        The difference comes from augmentation and dropout.

        Args:
            model: The current model.
            split: The data to forget and to retain.
            recipe: Describes the batches.
            in_run: Mean of the measure over a training batch.
            plain: Mean of the measure over a batch in eval mode, without augmentation.
        """
        size = forget_batch_size(split, recipe)

        @torch.no_grad()
        def shift() -> float:
            chosen = self._sample_of_run(split, recipe, split.forget_indices, size)
            batches = self.eval_batches(model, split.train, chosen, max(size, _MIN_SAMPLES))
            with isolated(derive(self.seed, "level")):
                alone = math.fsum(len(part) * plain(batch) for part, batch in batches) / len(chosen)
            return self._mean_in_run(model, split, recipe, chosen, size, in_run) - alone

        return self.replicas.from_first(shift)

    def _sample_of_run(self, split: ForgetSplit, recipe: DescentRecipe, indices: np.ndarray, size: int) -> np.ndarray:
        """Random samples that represent a run."""
        run_samples = size * paired_plan(split, recipe, self.seed).total
        count = min(max(run_samples // 4, _MIN_SAMPLES), _MAX_SAMPLES)
        return shuffled(indices, self.seed, "level")[:count]

    @torch.no_grad()
    def _mean_in_run(
        self,
        model: nn.Module,
        split: ForgetSplit,
        recipe: DescentRecipe,
        chosen: np.ndarray,
        size: int,
        measure: Callable[[Any], float],
    ) -> float:
        """Mean of a measure over the chosen samples, as training batches."""
        apply_policy(model, recipe.batchnorm)
        # Only BatchNorm depends on the batch size; larger batches are faster.
        order = cut(chosen, size if has_batch_statistics(model) else max(size, _MIN_SAMPLES))
        batches = self._loader(split.train, model).batches(order, 0, recipe.augment)
        # Restored as well, because a weight of zero does not keep NaN out of a mean.
        kept = preserved_statistics(model), restored_statistics(model)
        with isolated(derive(self.seed, "level")), kept[0], kept[1], explain_single_samples():
            found = [len(part) * measure(batch) for part, batch in zip(order, batches, strict=True)]
        return math.fsum(found) / len(chosen)

    def _steps(
        self, model: nn.Module, recipe: DescentRecipe, plan: Plan, loader: Loader
    ) -> Iterator[tuple[tuple[np.ndarray, ...], tuple[Any, ...]]]:
        """Yield (indices, data) per side for each step: this process's part."""
        self._begin(model, recipe, plan)
        for epoch, sides in plan.epochs_from(self._step):
            parts = zip(*([self.replicas.part(len(batch)) for batch in side] for side in sides), strict=True)
            mine = [[self.replicas.take(batch) for batch in side] for side in sides]
            data = zip(*(loader.batches(side, epoch, recipe.augment) for side in mine), strict=True)
            # All of an epoch together: alone, between the passes, one takes 18 µs instead of 1.
            seeds = [derive(self.seed, "step", self._step + later) for later in range(len(sides[0]))]
            for part, indices, seed, batch in zip(parts, zip(*mine, strict=True), seeds, data, strict=True):
                self._parts, self._current = (part[0], part[-1]), (indices, batch)
                reseed(seed)
                yield indices, batch
                self._advance(plan.total, model)

    def _begin(self, model: nn.Module, recipe: DescentRecipe, plan: Plan) -> None:
        apply_policy(model, recipe.batchnorm)
        self._check_batchnorm_batches(model, plan.smallest)
        self._statistics = running_statistics(model)
        self._descent = RevertibleOptimizer(model, recipe, plan.total)
        if self._checkpointer and (state := self.replicas.from_first(self._checkpointer.load)):
            self._descent.load_state_dict(state["descent"])
            self._history, self._step = History(state["history"]), state["step"]
            self._passes.load_state_dict(state["passes"])
            if self._attached is not None:
                self._attached.load_state_dict(state["attached"])
        self._total = plan.total
        self._report(self._step, plan.total)

    def _advance(self, total: int, model: nn.Module) -> None:
        self._step += 1
        self._report(self._step, total)
        if self._checkpointer and self.replicas.is_first:
            self._checkpointer.save_if_due(self._state)
        # Replicas that diverge do so from the first step, so check there and fail early.
        if not self._replicas_checked:
            self.replicas.check_weights(model)
            self._replicas_checked = True

    def _state(self) -> dict[str, Any]:
        """Everything the next step depends on."""
        return {
            "descent": self._running.state_dict(),
            "history": self._history.rows,
            "step": self._step,
            "passes": self._passes.state_dict(),
            "attached": None if self._attached is None else self._attached.state_dict(),
        }

    def _apply_saliency(
        self, model: nn.Module, task: Task, split: ForgetSplit, recipe: DescentRecipe, loader: Loader
    ) -> None:
        """Restrict updates to the salient weights if the recipe sets ``saliency``.

        Must run before a checkpoint is loaded, so that a resumed run computes the same mask from the original weights.
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

    def _maybe_recalibrate(
        self, model: nn.Module, task: Task, dataset: Any, indices: np.ndarray, recipe: DescentRecipe, size: int
    ) -> None:
        if recipe.batchnorm == "recalibrate":
            recalibrate_over(
                model,
                dataset,
                indices,
                task.retain_loss,
                batch_size=size,
                seed=self.seed,
                workers=self.workers,
                augment=recipe.augment,
            )

    def _check_batchnorm_batches(self, model: nn.Module, smallest: int) -> None:
        """Raise, in all processes, if BatchNorm in train mode would get a batch of one sample in any of them."""
        several = self.replicas.size > 1
        if several and has_batch_statistics(model) and smallest < 2 * self.replicas.size:
            raise GradPivotError(
                f"the smallest batch has {smallest} samples, but BatchNorm in train mode needs two in each of the "
                f"{self.replicas.size} processes; use batchnorm='frozen', another batch_size or fewer processes"
            )
