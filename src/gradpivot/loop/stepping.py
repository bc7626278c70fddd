"""Inside a step: two gradients, the optimiser, what it really did, and the way back to the last good weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from gradpivot.data import Loader, batch_count, cut
from gradpivot.errors import GradPivotError
from gradpivot.geometry import Weights, apply_mask, correction, gram_of, limited, trainable_masks
from gradpivot.loop.batches import bad_data
from gradpivot.loop.combined import Combined
from gradpivot.loop.gradients import Gradients, Loss, LossesOfStep, mean_gradient
from gradpivot.loop.history import History, row_of
from gradpivot.loop.motion import Descending, Move
from gradpivot.loop.outcome import Diverged, Moved, Progress
from gradpivot.loop.precision import Passes
from gradpivot.runtime import Part, Replicas, derive, reseed

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit

__all__ = ["Stepping"]


@dataclass(kw_only=True)
class Stepping:
    """The steps of one run; :class:`gradpivot.loop.Loop` adds what surrounds them.

    Attributes:
        seed: Decides everything random.
        workers: Data-loading processes; never changes a number.
        progress: Called after every step.
        replicas: The processes that run the method together, each on its part of every batch: those of the process
            group if there is one, else this one alone.
    """

    seed: int = 0
    workers: int = 0
    progress: Progress | None = None
    replicas: Replicas = field(default_factory=Replicas.current)
    _history: History = field(default_factory=History, init=False)
    _step: int = field(default=0, init=False)
    _descent: Descending | None = field(default=None, init=False)
    _move: Move | None = field(default=None, init=False)
    _mask: list[Tensor | None] | None = field(default=None, init=False)
    _passes: Passes = field(default_factory=Passes, init=False)
    _parts: tuple[Part, Part] = field(default=(Part(0, 1, 1), Part(0, 1, 1)), init=False)
    _statistics: list[Tensor] = field(default_factory=list, init=False)
    _at_hand: tuple[Sequence[np.ndarray], Sequence[Any]] = field(default=((), ()), init=False)

    def undo_last_step(self) -> None:
        """Put the weights of before the last step back: they are the last whose losses were finite."""
        (self._move or self._running).restore_last_good()

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
        order = cut(indices, batch_size)
        yield from zip(order, self._loader(dataset, model).batches(order, 0), strict=True)

    def gradients(self, *, forget: Loss | None = None, retain: Loss | None = None) -> Gradients:
        """The gradients of one or both losses, each from a forward pass of its own.

        A loss is the mean over its batch. Of several processes each takes the mean over its part; what comes back is
        the gradient of the mean over the whole batch, the same in all of them.

        Raises:
            Diverged: if a loss or gradient is not finite; the last good weights are back in place then.
        """
        parameters = self._running.parameters
        (f, forget_loss), (r, retain_loss) = self._losses.gradients(forget, retain, parameters, self._statistics)
        if self._mask is not None:
            apply_mask(f, self._mask)
            apply_mask(r, self._mask)
        return self._guarded(Gradients(f, r, gram_of(f, r), forget_loss, retain_loss))

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
                that is taken out again (:mod:`gradpivot.geometry._correction`). Needs ``measured``.

        Raises:
            Diverged: if the step made a weight non-finite.
        """
        descent = self._running
        weights, norm = limited(weights, gradients.gram, descent.max_norm)
        row = row_of(self._step, gradients, weights, norm)
        if weights == (0.0, 0.0):
            self._history.add(row)
            return Moved()
        combined = Combined(gradients, weights)
        size, *along = descent.step(
            self._step, combined.gradient, combined.kept, self._mask, rate=rate, measured=measured
        )
        if not math.isfinite(size):
            self._diverge("the step made a weight non-finite")
        if measured:
            row |= self._corrected(combined.along_both(*along), promised, gradients, combined)
        self._history.add(row)
        return Moved(row["delta_forget"] or 0.0, row["delta_retain"] or 0.0)

    def _corrected(
        self, along: Moved, promised: tuple[bool, bool], gradients: Gradients, combined: Combined
    ) -> dict[str, float | None]:
        """⟨Δθ,f⟩ and ⟨Δθ,r⟩ after what broke the promise has been taken out of the step; None without that loss."""
        forget = along.forget if gradients.forget_loss is not None else None
        retain = along.retain if gradients.retain_loss is not None else None
        known = forget or 0.0, retain or 0.0
        x, y = correction(gradients.gram, *known, forget=promised[0], retain=promised[1])
        if x == y == 0:
            return {"delta_forget": forget, "delta_retain": retain}
        self._running.add(combined.kept, combined.gradient, *combined.shares(x, y))
        ff, rr, fr = gradients.gram
        return {"delta_forget": known[0] + x * ff + y * fr, "delta_retain": known[1] + x * fr + y * rr}

    @torch.no_grad()
    def losses_again(self, *, forget: Loss, retain: Loss) -> tuple[float, float]:
        """Both losses of the step just made, on the same batches under the same random numbers; no gradient.

        For a method that looks whether a step did what it should. Running statistics stay what they are.
        """
        statistics = [buffer.detach().clone() for buffer in self._running.buffers]
        reseed(derive(self.seed, "step", self._step))
        losses = self._losses.values(forget, retain)
        for buffer, before in zip(self._running.buffers, statistics, strict=True):
            buffer.copy_(before)
        return losses

    def take_back(self) -> None:
        """Undo the step just made; it stays in the history, with what it did."""
        self._running.take_back()

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
        asked = [
            (indices[slice(*self.replicas.part(len(indices))[:2])], len(indices), loss)
            for indices, loss in ((split.forget_indices, forget), (split.retain_indices, retain))
        ]
        self._move = move = Move(model, sum(batch_count(len(mine), batch_size) for mine, _, _ in asked) + 1)
        self._report_move()
        sides = [
            partial(
                mean_gradient,
                self.pass_over(model, split.train, mine, batch_size),
                samples,
                loss,
                move.parameters,
                self._passes,
                self._report_move,
            )
            for mine, samples, loss in asked
        ]
        (f, forget_loss), (r, retain_loss) = self.replicas.mean_gradients(move.parameters, sides)
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
        row = row_of(self._step, gradients, weights, math.sqrt(size))
        self._history.add(row | {"delta_forget": along_forget, "delta_retain": along_retain})
        self._report_move()

    def record(self, **columns: float | None) -> None:
        """Add columns of a method's own to the step just made; give the same ones at every step.

        They are means over the forget batch, or the same for every sample: of several processes' numbers the mean is
        recorded, weighted by how much of that batch each has.
        """
        self._history.add_to_last(self.replicas.mean(columns, self._parts[0].share))

    def recorded(self, column: str) -> list[Any]:
        """What the history has under ``column`` so far, one entry a step."""
        return self._history.column(column)

    @property
    def last_row(self) -> Mapping[str, Any] | None:
        """The last step's columns; None before the first. After a resume, where the killed run's state is."""
        return self._history.last

    def mean_over_forget(self, value: float) -> float:
        """The mean over the forget batch of a number that this process has of its part."""
        found = self.replicas.mean({"value": value}, self._parts[0].share)["value"]
        assert found is not None
        return found

    @property
    def forget_samples(self) -> int:
        """How many samples the forget batch has, in all processes together."""
        return self._parts[0].total

    @property
    def _running(self) -> Descending:
        if self._descent is None:
            raise GradPivotError("take gradients inside 'for batch in loop.paired_batches(…)'")
        return self._descent

    @property
    def _losses(self) -> LossesOfStep:
        return LossesOfStep(self.seed, self._step, self._parts, self.replicas, self._passes)

    def _loader(self, dataset: Any, model: nn.Module) -> Loader:
        first = next(model.parameters(), None)
        if first is None:
            raise GradPivotError("the model has no parameters; there is nothing to unlearn")
        return Loader(dataset, first.device, self.seed, self.workers)

    def _guarded(self, gradients: Gradients) -> Gradients:
        if gradients.fault is not None:
            self._diverge(gradients.fault + bad_data(*self._at_hand))
        return gradients

    def _diverge(self, reason: str) -> NoReturn:
        self.undo_last_step()
        raise Diverged(self._step, reason)

    def _report_move(self) -> None:
        assert self._move is not None
        self._report(self._move.done, self._move.total)
        self._move.done += 1

    def _report(self, done: int, total: int) -> None:
        if self.progress and self.replicas.is_first:
            self.progress(done, total)
