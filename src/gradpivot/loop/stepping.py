"""One step: gradients, optimiser update, telemetry, and rollback to the last good weights."""

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
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.geometry import Weights, apply_mask, correction, gram_of, limited, trainable_masks
from gradpivot.loop.batches import describe_non_finite
from gradpivot.loop.combined import Combined
from gradpivot.loop.gradients import Gradients, Loss, StepLosses, mean_gradient
from gradpivot.loop.history import History, make_row
from gradpivot.loop.motion import OneShotUpdate, RevertibleOptimizer
from gradpivot.loop.outcome import Diverged, FirstOrderChange, Progress
from gradpivot.loop.precision import Passes
from gradpivot.runtime import Part, Replicas, derive, reseed

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit

__all__ = ["Stepping"]


@dataclass(kw_only=True)
class Stepping:
    """The steps of a run; :class:`gradpivot.loop.Loop` adds batches and checkpoints.

    Attributes:
        seed: Seeds all randomness.
        workers: Data-loading processes; does not affect results.
        progress: Called after every step.
        replicas: The data-parallel processes. Default: the current process group, or this process alone.
    """

    seed: int = 0
    workers: int = 0
    progress: Progress | None = None
    replicas: Replicas = field(default_factory=Replicas.current)
    _history: History = field(default_factory=History, init=False)
    _step: int = field(default=0, init=False)
    _descent: RevertibleOptimizer | None = field(default=None, init=False)
    _move: OneShotUpdate | None = field(default=None, init=False)
    _mask: list[Tensor | None] | None = field(default=None, init=False)
    _passes: Passes = field(default_factory=Passes, init=False)
    _parts: tuple[Part, Part] = field(default=(Part(0, 1, 1), Part(0, 1, 1)), init=False)
    _statistics: list[Tensor] = field(default_factory=list, init=False)
    _current: tuple[Sequence[np.ndarray], Sequence[Any]] = field(default=((), ()), init=False)

    def undo_last_step(self) -> None:
        """Restore the weights before the last step, the last ones with finite losses."""
        (self._move or self._running).restore_last_good()

    def restrict(self, model: nn.Module, mask: Sequence[Tensor | None]) -> None:
        """Update only the weights inside a mask for the rest of the run; a later call replaces the mask.

        Outside the mask gradients are zero, also in the Gram matrix, and the weights are restored after every step, so
        that momentum and weight decay have no effect. Buffers, such as running statistics, are not masked.

        Args:
            model: The model.
            mask: One boolean tensor per trainable parameter, True where it may change; None for all of it.

        Raises:
            GradPivotError: If a mask is missing or has the wrong shape.
        """
        self._mask = trainable_masks(mask, [p for p in model.parameters() if p.requires_grad])

    def eval_batches(
        self, model: nn.Module, dataset: Any, indices: np.ndarray, batch_size: int
    ) -> Iterator[tuple[np.ndarray, Any]]:
        """Yield (indices, batch) of the given samples in order, with the model in eval mode.

        Takes no step and applies no augmentation; a dataset with its own augmentation uses that of the first epoch.
        Every process gets all samples, so that all compute the same result.
        """
        model.eval()
        order = cut(indices, batch_size)
        yield from zip(order, self._loader(dataset, model).batches(order, 0), strict=True)

    def gradients(self, *, forget: Loss | None = None, retain: Loss | None = None) -> Gradients:
        """Compute the gradients of one or both losses, each with its own forward pass.

        A loss is the mean over its batch. With several processes each computes the mean over its part, and all get the
        gradient of the mean over the whole batch.

        Raises:
            Diverged: If a loss or gradient is not finite; restores the last good weights.
        """
        parameters = self._running.parameters
        (f, forget_loss), (r, retain_loss) = self._losses.gradients(forget, retain, parameters, self._statistics)
        if self._mask is not None:
            apply_mask(f, self._mask)
            apply_mask(r, self._mask)
        gram = gram_of(f, r, self._running.room)
        return self._check_finite(Gradients(f, r, gram, forget_loss, retain_loss))

    def step(
        self,
        gradients: Gradients,
        weights: Weights,
        *,
        rate: float = 1.0,
        measured: bool = True,
        non_increasing: tuple[bool, bool] = (False, False),
    ) -> FirstOrderChange:
        """Take an optimiser step along a·f + b·r, clipped to ``max_norm``, and record its effect.

        Weights (0, 0), for opposed gradients, skip the step: momentum and weight decay would otherwise move the model
        away from a Pareto-stationary point.

        Args:
            gradients: The result of :meth:`gradients`.
            weights: a and b.
            rate: Factor on the learning rate for this step.
            measured: Whether to record ⟨Δθ,f⟩ and ⟨Δθ,r⟩, which takes two passes over the weights with momentum,
                weight decay or Adam.
            non_increasing: Whether L_f and L_r must not rise to first order. Removes the part of the update, from
                momentum, Adam or weight decay, that violates this (:mod:`gradpivot.geometry._correction`). Needs
                ``measured``.

        Raises:
            Diverged: If the step makes a weight non-finite.
        """
        descent = self._running
        weights, norm = self.limited(weights, gradients, descent.max_norm)
        row = make_row(self._step, gradients, weights, norm)
        if weights == (0.0, 0.0):
            self._history.add(row)
            return FirstOrderChange()
        combined = Combined(gradients, weights)
        length = descent.plain_step(self._step, combined.gradient, norm, rate)
        if length is not None:
            (ff, rr, fr), (a, b) = gradients.gram, weights
            along = FirstOrderChange(-length * (a * ff + b * fr), -length * (a * fr + b * rr))
        else:
            size, *products = descent.step(
                self._step, combined.gradient, combined.kept, self._mask, rate=rate, measured=measured
            )
            if not math.isfinite(size):
                self._diverge("the step made a weight non-finite")
            along = combined.first_order_change(*products)
        if measured:
            row |= self._corrected(along, non_increasing, gradients, combined)
        self._history.add(row)
        return FirstOrderChange(row["delta_forget"] or 0.0, row["delta_retain"] or 0.0)

    def _corrected(
        self, along: FirstOrderChange, non_increasing: tuple[bool, bool], gradients: Gradients, combined: Combined
    ) -> dict[str, float | None]:
        """Remove first-order increases from the step; returns ⟨Δθ,f⟩ and ⟨Δθ,r⟩, None for a missing loss."""
        forget = along.forget if gradients.forget_loss is not None else None
        retain = along.retain if gradients.retain_loss is not None else None
        known = forget or 0.0, retain or 0.0
        x, y = correction(gradients.gram, *known, forget=non_increasing[0], retain=non_increasing[1])
        if x == y == 0:
            return {"delta_forget": forget, "delta_retain": retain}
        self._running.add(combined.kept, combined.gradient, *combined.shares(x, y))
        ff, rr, fr = gradients.gram
        return {"delta_forget": known[0] + x * ff + y * fr, "delta_retain": known[1] + x * fr + y * rr}

    @torch.no_grad()
    def recompute_losses(self, *, forget: Loss, retain: Loss) -> tuple[float, float]:
        """Recompute both losses after the last step, on the same batches and random numbers, without gradients.

        Running statistics are preserved.
        """
        statistics = [buffer.detach().clone() for buffer in self._running.buffers]
        reseed(derive(self.seed, "step", self._step))
        losses = self._losses.values(forget, retain)
        for buffer, before in zip(self._running.buffers, statistics, strict=True):
            buffer.copy_(before)
        return losses

    def revert_step(self) -> None:
        """Undo the last step; it stays in the history."""
        self._running.revert_step()

    def mean_gradients(
        self,
        model: nn.Module,
        split: ForgetSplit,
        batch_size: int,
        *,
        forget: Callable[[Any], Tensor],
        retain: Callable[[Any], Tensor],
    ) -> Gradients:
        """Compute the gradients of the mean losses over all of D_f and D_r in eval mode, for a one-shot method.

        Args:
            model: The model that :meth:`move` will update.
            split: The data to forget and to retain.
            batch_size: Batch size; affects memory and rounding only.
            forget: Maps a batch to its mean L_f.
            retain: Maps a batch to its mean L_r.

        Raises:
            Diverged: If a loss or gradient is not finite.
        """
        sides = [
            (indices[slice(*self.replicas.part(len(indices))[:2])], len(indices), loss)
            for indices, loss in ((split.forget_indices, forget), (split.retain_indices, retain))
        ]
        self._move = move = OneShotUpdate(model, sum(batch_count(len(mine), batch_size) for mine, _, _ in sides) + 1)
        self._report_move()
        computations = [
            partial(
                mean_gradient,
                self.eval_batches(model, split.train, mine, batch_size),
                samples,
                loss,
                move.parameters,
                self._passes,
                self._report_move,
            )
            for mine, samples, loss in sides
        ]
        (f, forget_loss), (r, retain_loss) = self.replicas.mean_gradients(move.parameters, computations)
        return self._check_finite(Gradients(f, r, gram_of(f, r), forget_loss, retain_loss))

    def move(self, update: Sequence[Tensor], gradients: Gradients, weights: Weights) -> None:
        """Add a one-shot update to the trainable weights and record it as the run's only step.

        Args:
            update: Δθ, one tensor per trainable parameter.
            gradients: The result of :meth:`mean_gradients`.
            weights: Their weights in the update, before any preconditioning.

        Raises:
            Diverged: If the update makes a weight non-finite; restores the weights.
        """
        if self._move is None:
            raise GradPivotError("call loop.mean_gradients(…) before loop.move(…)")
        size, along_forget, along_retain = self._move.add(update, gradients.forget, gradients.retain)
        if not math.isfinite(size):
            self._diverge("the update made a weight non-finite")
        row = make_row(self._step, gradients, weights, math.sqrt(size))
        self._history.add(row | {"delta_forget": along_forget, "delta_retain": along_retain})
        self._report_move()

    def record(self, **columns: float | None) -> None:
        """Add columns to the last step; use the same ones at every step.

        Values are means over the forget batch, or constant. Processes are averaged by their share of that batch.
        """
        self._history.add_to_last(self.replicas.mean(columns, self._parts[0].share))

    def recorded(self, column: str) -> list[Any]:
        """The recorded values of ``column``, one per step."""
        return self._history.column(column)

    @property
    def last_row(self) -> Mapping[str, Any] | None:
        """The last step's columns, also after resuming; None before the first step."""
        return self._history.last

    def mean_over_forget(self, value: float) -> float:
        """Average a value over all processes' parts of the forget batch."""
        found = self.replicas.mean({"value": value}, self._parts[0].share)["value"]
        assert found is not None
        return found

    @property
    def forget_samples(self) -> int:
        """Size of the forget batch over all processes."""
        return self._parts[0].total

    @property
    def _running(self) -> RevertibleOptimizer:
        if self._descent is None:
            raise GradPivotError("call this inside 'for batch in loop.paired_batches(…)'")
        return self._descent

    @property
    def _losses(self) -> StepLosses:
        return StepLosses(self.seed, self._step, self._parts, self.replicas, self._passes)

    def _loader(self, dataset: Any, model: nn.Module) -> Loader:
        first = next(model.parameters(), None)
        if first is None:
            raise GradPivotError("the model has no parameters to unlearn")
        return Loader(dataset, first.device, self.seed, self.workers)

    def limited(self, weights: Weights, gradients: Gradients, max_norm: float | None) -> tuple[Weights, float]:
        """Scale the weights down so that the step has at most this norm; return them with the norm.

        Raises:
            Diverged: If the norm is beyond float64.
        """
        try:
            return limited(weights, gradients.gram, max_norm)
        except NonFiniteError as error:
            self._diverge(str(error))

    def _check_finite(self, gradients: Gradients) -> Gradients:
        if gradients.fault is not None:
            self._diverge(gradients.fault + describe_non_finite(*self._current))
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
