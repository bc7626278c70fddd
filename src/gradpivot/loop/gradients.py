"""Gradients and values of a step's two losses, each with its own random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradpivot.geometry import Gram
from gradpivot.loop.precision import Passes
from gradpivot.runtime import Gradient, Part, Replicas, derive, drawing_for, isolated

__all__ = ["Gradients", "Loss", "StepLosses", "mean_gradient"]

Loss = Callable[[], Tensor]


@dataclass
class Gradients:
    """The two gradients of a step and their Gram matrix; the gradient of a missing loss is zero."""

    forget: Gradient
    retain: Gradient
    gram: Gram
    forget_loss: float | None
    retain_loss: float | None

    @property
    def fault(self) -> str | None:
        """Describes the first non-finite loss or gradient; None if all are finite."""
        for name, loss in (("forget", self.forget_loss), ("retain", self.retain_loss)):
            if loss is not None and not math.isfinite(loss):
                return f"the {name} loss is {loss}"
        return None if self.gram.is_finite else "a gradient is not finite"


@dataclass(frozen=True)
class StepLosses:
    """L_f and L_r of one step, split over the processes.

    Attributes:
        seed: The run's seed.
        step: The step number.
        parts: This process's parts of the forget and retain batches.
        replicas: The processes.
        passes: Computes forward and backward passes.
    """

    seed: int
    step: int
    parts: tuple[Part, Part]
    replicas: Replicas
    passes: Passes

    def gradients(
        self, forget: Loss | None, retain: Loss | None, parameters: Sequence[Tensor], statistics: Sequence[Tensor]
    ) -> list[tuple[Gradient, float | None]]:
        """Gradient and value of each loss over the whole batch; averages ``statistics`` over the processes."""
        compute = self._whole_of if self.replicas.size == 1 else self._share_of
        sides = [
            None if loss is None else partial(compute, name, loss, part, parameters)
            for name, loss, part in (("forget", forget, self.parts[0]), ("retain", retain, self.parts[1]))
        ]
        return self.replicas.mean_gradients(parameters, sides, statistics)

    def values(self, forget: Loss, retain: Loss) -> tuple[float, float]:
        """Both losses, without gradients."""
        mine = self._value("forget", forget, self.parts[0]), self._value("retain", retain, self.parts[1])
        together = self.replicas.gather(mine)
        return math.fsum(theirs[0] for theirs in together), math.fsum(theirs[1] for theirs in together)

    def _value(self, name: str, loss: Loss, part: Part) -> float:
        if part.share == 0:
            return 0.0
        if self.replicas.size > 1:
            with self._drawing(name, part):
                return part.share * self.passes.loss(loss)
        if name == "forget":
            return self.passes.loss(loss)
        with drawing_for(*part, partial(self._draws_seed, name)):
            return self.passes.loss(loss)

    def _whole_of(
        self, name: str, loss: Loss, part: Part, parameters: Sequence[Tensor]
    ) -> tuple[Gradient, float | None]:
        """Compute the whole gradient. L_r draws independently of L_f, as it does with several processes."""
        if name == "forget":
            return self.passes.loss_and_gradient(loss, parameters)
        with drawing_for(*part, partial(self._draws_seed, name)):
            return self.passes.loss_and_gradient(loss, parameters)

    def _share_of(
        self, name: str, loss: Loss, part: Part, parameters: Sequence[Tensor]
    ) -> tuple[Gradient, float | None]:
        """Compute this process's share. Inside the loss each process draws its own numbers (dropout)."""
        if part.share == 0:
            self.passes.sync_scale(self.replicas)
            return [None] * len(parameters), 0.0
        # The loss is scaled before the backward pass, because SyncBatchNorm exchanges gradients during it.
        with self._drawing(name, part):
            return self.passes.loss_and_gradient(lambda: loss() * part.share, parameters, self.replicas)

    def _draws_seed(self, name: str) -> int:
        step = (self.seed, "step", self.step) if name == "forget" else (self.seed, "step", self.step, name)
        return derive(*step)

    @contextmanager
    def _drawing(self, name: str, part: Part) -> Iterator[None]:
        """Seed the random numbers of one side's pass in this process."""
        own = derive(self.seed, "step", self.step, name, "process", self.replicas.rank)
        with isolated(own), drawing_for(*part, partial(self._draws_seed, name)):
            yield


def mean_gradient(
    batches: Iterable[tuple[np.ndarray, Any]],
    samples: int,
    loss: Callable[[Any], Tensor],
    parameters: Sequence[Tensor],
    passes: Passes,
    on_batch: Callable[[], None],
) -> tuple[Gradient, float]:
    """This process's contribution to the gradient and value of a mean loss.

    Args:
        batches: (indices, data) pairs of this process.
        samples: Number of samples over all processes.
        loss: Maps a batch to its mean loss.
        parameters: The parameters to differentiate by.
        passes: Computes forward and backward passes.
        on_batch: Called after each batch.
    """
    total, mean = [torch.zeros_like(p, requires_grad=False) for p in parameters], 0.0
    for indices, batch in batches:
        # Not synchronised: processes may have different numbers of batches, and in eval mode a retry has no effect.
        gradient, value = passes.loss_and_gradient(partial(loss, batch), parameters)
        share = len(indices) / samples
        mean += share * value
        for t, g in zip(total, gradient, strict=True):
            if g is not None:
                t.add_(g, alpha=share)
        on_batch()
    return [*total], mean
