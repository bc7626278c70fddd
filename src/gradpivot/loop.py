"""What must be identical for all methods: batches, gradients, step, clock, telemetry, guard, checkpoints.

A method is a plain ``for`` loop over :meth:`Loop.paired_batches`, :meth:`Loop.sequential_batches` or
:meth:`Loop.batches`; the Loop owns everything that would make two methods incomparable if each did it for itself.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from gradpivot.backward import apply_mask, describe, limited, trainable_masks
from gradpivot.checkpoint import Checkpoint
from gradpivot.data.loader import Loader
from gradpivot.data.order import (
    batch_count,
    cut,
    default_batch_size,
    paired_order,
    shuffled,
    smallest_batch,
)
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.geometry.combination import combine
from gradpivot.geometry.correction import correction
from gradpivot.geometry.gramian import Gram, gram_of
from gradpivot.geometry.weighting import Weights
from gradpivot.initialisation import reinitialise
from gradpivot.motion import Descending, Move
from gradpivot.normalisation import apply_policy, has_batch_statistics, recalibrate, running_statistics
from gradpivot.optimizers import Recipe
from gradpivot.parallel import Gradient, Part, Replicas, Side
from gradpivot.precision import Passes
from gradpivot.randomness import derive, drawing_for, isolated, reseed
from gradpivot.saliency import saliency_mask

if TYPE_CHECKING:
    from gradpivot.data.split import ForgetSplit
    from gradpivot.tasks.task import Task

__all__ = ["Batch", "Diverged", "Gradients", "Loop", "Moved", "Outcome", "PairedBatch", "Progress", "finite"]

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""

ModelFactory = Callable[[], nn.Module]


class Diverged(Exception):  # noqa: N818 - an outcome that methods let pass, not an error of anybody's
    """A loss, gradient or weight became NaN or infinite; the Loop has put the last good weights back."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(f"diverged at step {step}: {reason}")
        self.step, self.reason = step, reason


class RunnableMethod(Protocol):
    """What the Loop needs of a method: to be run."""

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Change ``model`` in place."""
        ...


@dataclass(frozen=True)
class Batch:
    """One step's data: samples to keep or samples to forget."""

    data: Any
    progress: float
    """How much of the run is done, from 0 at the first step to 1 at the last."""
    forgets: bool = False
    """Whether these are samples to forget."""
    ends_epoch: bool = False
    """Whether every sample has been seen once more after this; told by :meth:`Loop.batches` alone."""


@dataclass(frozen=True)
class PairedBatch:
    """One step's data: forget samples and as many fresh retain samples."""

    forget: Any
    retain: Any
    progress: float
    """How much of the run is done, from 0 at the first step to 1 at the last."""
    forget_indices: np.ndarray
    """Which training samples the forget batch holds, in its order; of several processes, this one's part."""


@dataclass
class Gradients:
    """The two gradients of one step and their Gram matrix; a side that was not asked for is zero."""

    forget: Gradient
    retain: Gradient
    gram: Gram
    forget_loss: float | None
    retain_loss: float | None


class Moved(NamedTuple):
    """The first-order effect of what the optimiser really did; zero where it did nothing or was not measured."""

    forget: float = 0.0
    """⟨Δθ,f⟩, negative where L_f goes down."""
    retain: float = 0.0
    """⟨Δθ,r⟩ likewise."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run left behind."""

    model: nn.Module
    history: dict[str, list[Any]]
    seconds: float
    diverged: dict[str, Any] | None


@dataclass(kw_only=True)
class Loop:
    """Runs one method once.

    Attributes:
        seed: Decides the order of batches, dropout, augmentation and new initialisations.
        workers: Data-loading processes; never changes a number.
        factory: Makes a new, randomly initialised model, for methods that start over.
        progress: Called after every step.
        checkpoint: Where to keep a resumable state, or None.
        checkpoint_seconds: How often to write it.
        precision: The number format of the losses' passes, one of :data:`gradpivot.precision.PRECISIONS`.
        compile: Whether ``torch.compile`` makes their code.
        replicas: The processes that run the method together, each on its part of every batch: those of the process
            group if there is one, else this one alone.
    """

    seed: int = 0
    workers: int = 0
    factory: ModelFactory | None = None
    progress: Progress | None = None
    checkpoint: Path | None = None
    checkpoint_seconds: float = 10.0
    precision: str = "float32"
    compile: bool = False
    replicas: Replicas = field(default_factory=Replicas.current)
    _history: list[dict[str, Any]] = field(default_factory=list, init=False)
    _step: int = field(default=0, init=False)
    _descent: Descending | None = field(default=None, init=False)
    _move: Move | None = field(default=None, init=False)
    _keeper: Checkpoint | None = field(default=None, init=False)
    _mask: list[Tensor | None] | None = field(default=None, init=False)
    _passes: Passes = field(default_factory=Passes, init=False)
    _parts: tuple[Part, Part] = field(default=(Part(0, 1, 1), Part(0, 1, 1)), init=False)
    _statistics: list[Tensor] = field(default_factory=list, init=False)

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
        self._history, self._step = [], 0
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
        return Outcome(model=working, history=_columns(self._history), seconds=seconds, diverged=diverged)

    def undo_last_step(self) -> None:
        """Put the weights of before the last step back: they are the last whose losses were finite."""
        (self._move or self._running).restore_last_good()

    def paired_batches(
        self, model: nn.Module, task: Task, split: ForgetSplit, recipe: Recipe
    ) -> Iterator[PairedBatch]:
        """Every forget sample once an epoch, each batch beside a fresh slice of the retain set."""
        size = recipe.batch_size or default_batch_size(len(split.forget_indices))
        per_epoch = batch_count(len(split.forget_indices), size)
        total, epochs = _length(recipe, per_epoch)
        loader = Loader(split.train, _device_of(model), self.seed, self.workers)
        self._mask_if_asked(model, task, split, recipe, loader, size)
        smallest = smallest_batch(len(split.forget_indices), size)
        if recipe.retain_batch_size is not None:
            smallest = min(smallest, recipe.retain_batch_size, len(split.retain_indices))
        self._begin(model, recipe, total, smallest)
        for epoch in range(self._step // per_epoch, epochs):
            skip, end = self._step - epoch * per_epoch, total - epoch * per_epoch
            forget, retain = paired_order(
                split.forget_indices, split.retain_indices, size, self.seed, epoch, recipe.retain_batch_size
            )
            forget_parts, forget = self._divided(forget[skip:end])
            retain_parts, retain = self._divided(retain[skip:end])
            sides = (loader.batches(side, epoch, recipe.augment) for side in (forget, retain))
            parts = zip(forget_parts, retain_parts, strict=True)
            for self._parts, indices, f, r in zip(parts, forget, *sides, strict=True):
                reseed(derive(self.seed, "step", self._step))
                yield PairedBatch(f, r, self._step / max(total - 1, 1), indices)
                self._advance(total, model)
        self._recalibrate_if_asked(model, task, split.retain_indices, recipe, loader, size)

    def sequential_batches(
        self, model: nn.Module, task: Task, split: ForgetSplit, recipe: Recipe
    ) -> Iterator[Batch]:
        """Every forget sample once an epoch, then every retain sample once: a step for each batch."""
        size = recipe.batch_size or default_batch_size(len(split.forget_indices))
        retain_size = recipe.retain_batch_size or size
        forgetting = batch_count(len(split.forget_indices), size)
        per_epoch = forgetting + batch_count(len(split.retain_indices), retain_size)
        total, epochs = _length(recipe, per_epoch)
        loader = Loader(split.train, _device_of(model), self.seed, self.workers)
        self._mask_if_asked(model, task, split, recipe, loader, size)
        smallest = min(
            smallest_batch(len(split.forget_indices), size),
            smallest_batch(len(split.retain_indices), retain_size),
        )
        self._begin(model, recipe, total, smallest)
        for epoch in range(self._step // per_epoch, epochs):
            order = cut(shuffled(split.forget_indices, self.seed, "forget", epoch), size)
            order += cut(shuffled(split.retain_indices, self.seed, "retain", epoch), retain_size)
            skip, end = self._step - epoch * per_epoch, total - epoch * per_epoch
            parts, order = self._divided(order[skip:end])
            for part, data in zip(parts, loader.batches(order, epoch, recipe.augment), strict=True):
                self._parts = part, part
                reseed(derive(self.seed, "step", self._step))
                forgets = self._step - epoch * per_epoch < forgetting
                yield Batch(data, self._step / max(total - 1, 1), forgets)
                self._advance(total, model)
        self._recalibrate_if_asked(model, task, split.retain_indices, recipe, loader, size)

    def batches(
        self, model: nn.Module, task: Task, dataset: Any, indices: np.ndarray, recipe: Recipe
    ) -> Iterator[Batch]:
        """Plain shuffled batches of some samples of ``dataset``, for training."""
        size = recipe.batch_size or 64
        per_epoch = batch_count(len(indices), size)
        total, epochs = _length(recipe, per_epoch)
        loader = Loader(dataset, _device_of(model), self.seed, self.workers)
        self._begin(model, recipe, total, smallest_batch(len(indices), size))
        for epoch in range(self._step // per_epoch, epochs):
            order = cut(shuffled(indices, self.seed, "train", epoch), size)
            skip, end = self._step - epoch * per_epoch, total - epoch * per_epoch
            parts, order = self._divided(order[skip:end])
            for part, data in zip(parts, loader.batches(order, epoch, recipe.augment), strict=True):
                self._parts = part, part
                reseed(derive(self.seed, "step", self._step))
                ends = self._step + 1 == (epoch + 1) * per_epoch
                yield Batch(data, self._step / max(total - 1, 1), ends_epoch=ends)
                self._advance(total, model)
        self._running.take_average()
        self._recalibrate_if_asked(model, task, indices, recipe, loader, size)

    def restrict(self, model: nn.Module, mask: Sequence[Tensor | None]) -> None:
        """Let only some weights change for the rest of the run; a later call replaces the mask.

        Outside the mask gradients count as zero, in the Gram matrix too, and after every step the weights there are put
        back bit by bit, whatever momentum and weight decay did. Buffers, such as BatchNorm's running statistics, are no
        weights and are not held.

        Args:
            model: The model that is being changed.
            mask: One boolean tensor per trainable parameter, True where it may change; None for all of it.

        Raises:
            GradPivotError: if a mask is missing or does not have its parameter's shape.
        """
        self._mask = trainable_masks(mask, [p for p in model.parameters() if p.requires_grad])

    def pass_over(
        self, model: nn.Module, dataset: Any, indices: np.ndarray, batch_size: int
    ) -> Iterator[tuple[np.ndarray, Any]]:
        """(Indices, batch) of some samples in their order with the model in eval mode, for what a method prepares.

        No step is counted. Samples are not augmented; a dataset that draws its own shows those of the first epoch. Each
        of several processes gets all samples: what it prepares is then equal in all.
        """
        model.eval()
        loader = Loader(dataset, _device_of(model), self.seed, self.workers)
        order = cut(indices, batch_size)
        yield from zip(order, loader.batches(order, 0), strict=True)

    def initialise(self, model: nn.Module) -> None:
        """Give ``model`` new random weights that depend on the seed only."""
        reseed(derive(self.seed, "initialisation"))
        reinitialise(model, self.factory)

    def gradients(
        self, *, forget: Callable[[], Tensor] | None = None, retain: Callable[[], Tensor] | None = None
    ) -> Gradients:
        """The gradients of one or both losses, each from a forward pass of its own.

        A loss is the mean over its batch. Of several processes each takes the mean over its part; what comes back is
        the gradient of the mean over the whole batch, the same in all of them.

        Raises:
            Diverged: if a loss or gradient is not finite; the last good weights are back in place then.
        """
        parameters = self._running.parameters
        sides = [
            self._side(name, loss, part, parameters)
            for name, loss, part in zip(("forget", "retain"), (forget, retain), self._parts, strict=True)
        ]
        (f, forget_loss), (r, retain_loss) = self.replicas.mean_gradients(parameters, sides, self._statistics)
        if self._mask is not None:
            apply_mask(f, self._mask)
            apply_mask(r, self._mask)
        return self._guarded(Gradients(f, r, gram_of(f, r), forget_loss, retain_loss))

    def mean_gradients(
        self,
        model: nn.Module,
        split: ForgetSplit,
        batch_size: int,
        *,
        forget: Callable[[Any], Tensor],
        retain: Callable[[Any], Tensor],
    ) -> Gradients:
        """The gradients of two mean losses over all of D_f and all of D_r in eval mode, for a one-shot method.

        Args:
            model: The model that :meth:`move` will change.
            split: What to forget.
            batch_size: Samples at a time; it changes memory and rounding, nothing else.
            forget: The mean L_f of a batch.
            retain: The mean L_r of a batch.

        Raises:
            Diverged: if a loss or gradient is not finite.
        """
        passes = [
            (indices[slice(*self.replicas.part(len(indices))[:2])], len(indices), loss)
            for indices, loss in ((split.forget_indices, forget), (split.retain_indices, retain))
        ]
        self._move = Move(model, sum(batch_count(len(mine), batch_size) for mine, _, _ in passes) + 1)
        self._report_move()
        sides = [
            partial(self._mean_over, self.pass_over(model, split.train, mine, batch_size), samples, loss)
            for mine, samples, loss in passes
        ]
        (f, forget_loss), (r, retain_loss) = self.replicas.mean_gradients(self._move.parameters, sides)
        return self._guarded(Gradients(f, r, gram_of(f, r), forget_loss, retain_loss))

    def move(self, update: Sequence[Tensor], gradients: Gradients, weights: Weights) -> None:
        """Add a one-shot update to the trainable weights, and record it as the run's only step.

        Args:
            update: Δθ, one tensor per trainable parameter.
            gradients: What :meth:`mean_gradients` gave.
            weights: What they entered the update with, before whatever it was multiplied by.

        Raises:
            Diverged: if the update made a weight non-finite; the weights are as before then.
        """
        if self._move is None:
            raise GradPivotError("take the gradients with loop.mean_gradients(…) before loop.move(…)")
        size, along_forget, along_retain = self._move.add(update, gradients.forget, gradients.retain)
        if not math.isfinite(size):
            self._diverge("the update made a weight nan or infinite")
        row = self._row(gradients, weights, math.sqrt(size))
        self._history.append(row | {"delta_forget": along_forget, "delta_retain": along_retain})
        self._report_move()

    def step(
        self,
        gradients: Gradients,
        weights: Weights,
        *,
        rate: float = 1.0,
        measured: bool = True,
        promised: tuple[bool, bool] = (False, False),
    ) -> Moved:
        """Let the optimiser step along a·f + b·r, shortened to ``max_norm``, and record what it really did.

        Opposed gradients (weights (0, 0)) do not move the model at all: momentum and weight decay would
        otherwise carry it on past a Pareto-stationary point.

        Args:
            gradients: What :meth:`gradients` gave.
            weights: a and b.
            rate: What the learning rate is multiplied with for this step.
            measured: Whether to record ⟨Δθ,f⟩ and ⟨Δθ,r⟩, two passes over the weights; with one loss they say little.
            promised: Whether L_f and L_r must not rise to first order: what momentum, Adam or weight decay did against
                that is taken out again (:mod:`gradpivot.geometry.correction`). Needs ``measured``.

        Raises:
            Diverged: if the step made a weight non-finite.
        """
        descent, gram = self._running, gradients.gram
        weights, norm = limited(weights, gram, descent.max_norm)
        row = self._row(gradients, weights, norm)
        if weights == (0.0, 0.0):
            self._history.append(row)
            return Moved()
        share_of_forget = abs(weights.forget) * gram.forget_norm
        share_of_retain = abs(weights.retain) * gram.retain_norm
        over = "retain" if weights.retain and share_of_retain >= share_of_forget else "forget"
        kept = gradients.forget if over == "retain" else gradients.retain
        combined = combine(gradients.forget, gradients.retain, weights, gram, over=over)
        size, along_kept, along_combined = descent.step(
            self._step, combined, kept, self._mask, rate=rate, measured=measured
        )
        if not math.isfinite(size):
            self._diverge("the step made a weight non-finite")
        if measured:
            along = _progress_along(weights, over, along_kept, along_combined, gradients)
            row |= self._corrected(along, promised, gradients, weights, combined, kept, over)
        self._history.append(row)
        return Moved(row["delta_forget"] or 0.0, row["delta_retain"] or 0.0)

    def _corrected(
        self,
        along: dict[str, float | None],
        promised: tuple[bool, bool],
        gradients: Gradients,
        weights: Weights,
        combined: Gradient,
        kept: Gradient,
        over: str,
    ) -> dict[str, float | None]:
        """⟨Δθ,f⟩ and ⟨Δθ,r⟩ after what broke the promise has been taken out of the step."""
        forget, retain = along["delta_forget"] or 0.0, along["delta_retain"] or 0.0
        x, y = correction(gradients.gram, forget, retain, forget=promised[0], retain=promised[1])
        if x == y == 0:
            return along
        # One gradient was overwritten by a·f + b·r: it is that, less the other's share, by its weight.
        if over == "retain":
            shares = x - y * weights.forget / weights.retain, y / weights.retain
        else:
            shares = y - x * weights.retain / weights.forget, x / weights.forget
        self._running.add(kept, combined, *shares)
        ff, rr, fr = gradients.gram
        return {"delta_forget": forget + x * ff + y * fr, "delta_retain": retain + x * fr + y * rr}

    @torch.no_grad()
    def losses_again(
        self, *, forget: Callable[[], Tensor], retain: Callable[[], Tensor]
    ) -> tuple[float, float]:
        """Both losses of the step just made, on the same batches under the same random numbers; no gradient.

        For a method that looks whether a step did what it should. Running statistics stay what they are.
        """
        statistics = [buffer.detach().clone() for buffer in self._running.buffers]
        reseed(derive(self.seed, "step", self._step))
        mine = [
            self._loss_again(name, loss, part)
            for name, loss, part in zip(("forget", "retain"), (forget, retain), self._parts, strict=True)
        ]
        for buffer, before in zip(self._running.buffers, statistics, strict=True):
            buffer.copy_(before)
        together = self.replicas.gather(mine)
        return math.fsum(theirs[0] for theirs in together), math.fsum(theirs[1] for theirs in together)

    def _loss_again(self, name: str, loss: Callable[[], Tensor], part: Part) -> float:
        if part.share == 0:
            return 0.0
        if self.replicas.size > 1:
            with self._drawing(name, part):
                return part.share * self._passes.loss(loss)
        if name == "forget":
            return self._passes.loss(loss)
        with drawing_for(*part, self._draws_seed(name)):
            return self._passes.loss(loss)

    def take_back(self) -> None:
        """Undo the step just made; it stays in the history, with what it did."""
        self._running.take_back()

    def mean_over_forget(self, value: float) -> float:
        """The mean over the forget batch of a number that this process has of its part."""
        found = self.replicas.mean({"value": value}, self._parts[0].share)["value"]
        assert found is not None
        return found

    @property
    def forget_samples(self) -> int:
        """How many samples the forget batch has, in all processes together."""
        return self._parts[0].total

    def record(self, **columns: float | None) -> None:
        """Add columns of a method's own to the step just made; give the same ones at every step.

        They are means over the forget batch, or the same for every sample: of several processes' numbers the mean is
        recorded, weighted by how much of that batch each has.
        """
        self._history[-1] |= self.replicas.mean(columns, self._parts[0].share)

    @property
    def last_row(self) -> Mapping[str, Any] | None:
        """The last step's columns; None before the first. After a resume, where the killed run's state is."""
        return self._history[-1] if self._history else None

    def recorded(self, column: str) -> list[Any]:
        """What the history has under ``column`` so far, one entry a step."""
        return [row[column] for row in self._history]

    def _row(self, gradients: Gradients, weights: Weights, norm: float) -> dict[str, Any]:
        told = describe(gradients.gram, weights, norm)
        losses = (gradients.forget_loss, gradients.retain_loss)
        return {
            "step": self._step,
            "forget_loss": gradients.forget_loss,
            "retain_loss": gradients.retain_loss,
            "cosine": finite(told.cosine),
            "phi": finite(told.phi),
            "forget_weight": weights.forget,
            "retain_weight": weights.retain,
            "forget_norm": told.forget_norm,
            "retain_norm": told.retain_norm,
            "step_norm": norm,
            "conflict": told.conflict,
            "pareto_stationary": told.pareto_stationary and None not in losses,
            "delta_forget": None,
            "delta_retain": None,
        }

    @property
    def _running(self) -> Descending:
        if self._descent is None:
            raise GradPivotError("take gradients inside 'for batch in loop.paired_batches(…)'")
        return self._descent

    def _mask_if_asked(
        self, model: nn.Module, task: Task, split: ForgetSplit, recipe: Recipe, loader: Loader, size: int
    ) -> None:
        """Keep to the salient weights if the recipe has a ``saliency``.

        Before a checkpoint is loaded: a resumed run computes the same mask, from the original weights.
        """
        share = getattr(recipe, "saliency", None)
        if share is None:
            return
        order = cut(split.forget_indices, size)
        reseed(derive(self.seed, "saliency"))
        batches = zip(loader.batches(order, -1), map(len, order), strict=True)
        try:
            self.restrict(model, saliency_mask(model, task, batches, share))
        except NonFiniteError as error:
            raise Diverged(self._step, str(error)) from None

    def recalibrate(self, model: nn.Module, task: Task, split: ForgetSplit, recipe: Recipe) -> None:
        """Take BatchNorm's statistics from retain data once more if the policy is ``recalibrate``.

        For a method that changes weights after its last step.
        """
        if recipe.batchnorm != "recalibrate":
            return
        size = recipe.batch_size or default_batch_size(len(split.forget_indices))
        loader = Loader(split.train, _device_of(model), self.seed, self.workers)
        self._recalibrate_if_asked(model, task, split.retain_indices, recipe, loader, size)

    def _recalibrate_if_asked(
        self, model: nn.Module, task: Task, indices: np.ndarray, recipe: Recipe, loader: Loader, size: int
    ) -> None:
        if recipe.batchnorm == "recalibrate":
            order = shuffled(indices, self.seed, "recalibrate")[:2048]
            recalibrate(model, loader.batches(cut(order, max(size, 64)), -1), task.retain_loss)

    def _begin(self, model: nn.Module, recipe: Recipe, total: int, smallest: int) -> None:
        apply_policy(model, recipe.batchnorm)
        self._refuse_single_samples(model, smallest)
        self._statistics = running_statistics(model)
        self._descent = Descending(model, recipe, total)
        if self._keeper and (state := self.replicas.from_first(self._keeper.load)):
            self._descent.load_state_dict(state["descent"])
            self._history, self._step = state["history"], state["step"]
            self._passes.load_state_dict(state["passes"])
        self._report(total)

    def _advance(self, total: int, model: nn.Module) -> None:
        self._step += 1
        self._report(total)
        if self._keeper and self.replicas.is_first:
            self._keeper.save_if_due(self._state)
        # Replicas that drift apart do so from the first step; told there, it has cost nothing yet.
        if len(self._history) == 1:
            self.replicas.same_weights(model)

    def _report(self, total: int) -> None:
        if self.progress and self.replicas.is_first:
            self.progress(self._step, total)

    def _divided(self, order: Sequence[np.ndarray]) -> tuple[list[Part], list[np.ndarray]]:
        """Which part of each batch is this process's, and its samples."""
        return [self.replicas.part(len(b)) for b in order], [self.replicas.take(b) for b in order]

    def _refuse_single_samples(self, model: nn.Module, smallest: int) -> None:
        """Raise, in all processes alike, if BatchNorm in train mode would see a part of fewer than two samples."""
        several = self.replicas.size > 1
        if several and has_batch_statistics(model) and smallest < 2 * self.replicas.size:
            raise GradPivotError(
                f"the smallest batch has {smallest} samples, and BatchNorm in train mode needs two in each of the "
                f"{self.replicas.size} processes; use batchnorm='frozen', another batch_size, or fewer processes"
            )

    def _side(
        self, name: str, loss: Callable[[], Tensor] | None, part: Part, parameters: Sequence[Tensor]
    ) -> Side | None:
        """How to compute this process's share of a gradient."""
        if loss is None:
            return None
        if self.replicas.size == 1:
            return partial(self._whole_of, name, loss, part, parameters)
        return partial(self._share_of, name, loss, part, parameters)

    def _whole_of(
        self, name: str, loss: Callable[[], Tensor], part: Part, parameters: Sequence[Tensor]
    ) -> tuple[Gradient, float | None]:
        """What L_r draws for its samples must not depend on what L_f drew before it: in other processes it has not."""
        if name == "forget":
            return _loss_and_gradient(loss, parameters, self._passes)
        with drawing_for(*part, self._draws_seed(name)):
            return _loss_and_gradient(loss, parameters, self._passes)

    def _draws_seed(self, name: str) -> int:
        step = (self.seed, "step", self._step) if name == "forget" else (self.seed, "step", self._step, name)
        return derive(*step)

    def _share_of(
        self, name: str, loss: Callable[[], Tensor], part: Part, parameters: Sequence[Tensor]
    ) -> tuple[Gradient, float | None]:
        """Inside the loss every process draws its own numbers (dropout); outside it all draw the same."""
        if part.share == 0:
            self._passes.stand_by(self.replicas)
            return [None] * len(parameters), 0.0
        with self._drawing(name, part):
            return _loss_and_gradient(loss, parameters, self._passes, part.share, self.replicas)

    @contextmanager
    def _drawing(self, name: str, part: Part) -> Iterator[None]:
        """The random numbers of one side's pass in one of several processes."""
        own = derive(self.seed, "step", self._step, name, "process", self.replicas.rank)
        with isolated(own), drawing_for(*part, self._draws_seed(name)):
            yield

    def _state(self) -> dict[str, Any]:
        return {
            "descent": self._running.state_dict(),
            "history": self._history,
            "step": self._step,
            "passes": self._passes.state_dict(),
        }

    def _guarded(self, gradients: Gradients) -> Gradients:
        for name, loss in (("forget", gradients.forget_loss), ("retain", gradients.retain_loss)):
            if loss is not None and not math.isfinite(loss):
                self._diverge(f"the {name} loss is {loss}")
        if not gradients.gram.is_finite:
            self._diverge("a gradient is not finite")
        return gradients

    def _mean_over(
        self, batches: Iterator[tuple[np.ndarray, Any]], samples: int, loss: Callable[[Any], Tensor]
    ) -> tuple[Gradient, float]:
        assert self._move is not None
        total, mean = [torch.zeros_like(p, requires_grad=False) for p in self._move.parameters], 0.0
        for indices, batch in batches:
            # Each process by itself: it may have one batch more than another, and eval mode leaves no trace of a retry.
            gradient, value = _loss_and_gradient(partial(loss, batch), self._move.parameters, self._passes)
            share = len(indices) / samples
            mean += share * value
            for t, g in zip(total, gradient, strict=True):
                if g is not None:
                    t.add_(g, alpha=share)
            self._report_move()
        return [*total], mean

    def _report_move(self) -> None:
        assert self._move is not None
        if self.progress and self.replicas.is_first:
            self.progress(self._move.done, self._move.total)
        self._move.done += 1

    def _diverge(self, reason: str) -> None:
        self.undo_last_step()
        raise Diverged(self._step, reason)


def _loss_and_gradient(
    loss: Callable[[], Tensor],
    parameters: Sequence[Tensor],
    passes: Passes,
    share: float = 1.0,
    together: Replicas | None = None,
) -> tuple[Gradient, float]:
    """A loss and its gradient, both times ``share``; ``together`` are the processes that all make this pass.

    Scaled before the backward pass: where that itself exchanges gradients (SyncBatchNorm), they must be scaled already.
    """
    try:
        return passes.loss_and_gradient(loss if share == 1 else lambda: loss() * share, parameters, together)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise GradPivotError(
            "a batch of one sample cannot go through BatchNorm in train mode; use batchnorm='frozen', or forget "
            "more than one sample"
        ) from None


def _progress_along(
    weights: Weights, over: str, along_kept: float, along_combined: float, gradients: Gradients
) -> dict[str, float | None]:
    """⟨Δθ,f⟩ and ⟨Δθ,r⟩: the optimiser's real first-order effect, negative where a loss goes down.

    One gradient was overwritten by g = a·f + b·r, the one with the larger share, so that recovering its product from
    ⟨Δθ,g⟩ divides by the larger weight and loses no precision.
    """
    kept_weight, lost_weight = (
        (weights.forget, weights.retain) if over == "retain" else (weights.retain, weights.forget)
    )
    along_lost = (along_combined - kept_weight * along_kept) / lost_weight
    forget, retain = (along_kept, along_lost) if over == "retain" else (along_lost, along_kept)
    return {
        "delta_forget": forget if gradients.forget_loss is not None else None,
        "delta_retain": retain if gradients.retain_loss is not None else None,
    }


def _length(recipe: Recipe, per_epoch: int) -> tuple[int, int]:
    """How many steps a run has, and how many passes it begins."""
    total = getattr(recipe, "iterations", None) or per_epoch * recipe.epochs
    return total, -(-total // per_epoch)


def _device_of(model: nn.Module) -> torch.device:
    first = next(model.parameters(), None)
    if first is None:
        raise GradPivotError("the model has no parameters; there is nothing to unlearn")
    return first.device


def finite(value: float) -> float | None:
    """The number, or None where it is not finite: NaN is not JSON."""
    return value if math.isfinite(value) else None


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
