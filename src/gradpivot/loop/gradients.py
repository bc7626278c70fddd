"""The two losses of a step: their gradients and values, each under the random numbers of its place."""

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

from gradpivot.errors import GradPivotError
from gradpivot.geometry import Gram
from gradpivot.loop.precision import Passes
from gradpivot.runtime import Gradient, Part, Replicas, Side, derive, drawing_for, isolated

__all__ = ["Gradients", "Loss", "LossesOfStep", "mean_gradient", "single_samples_refused"]

Loss = Callable[[], Tensor]


@dataclass
class Gradients:
    """The two gradients of one step and their Gram matrix; a side that was not asked for is zero."""

    forget: Gradient
    retain: Gradient
    gram: Gram
    forget_loss: float | None
    retain_loss: float | None

    @property
    def fault(self) -> str | None:
        """What of them is not finite; None if all is."""
        for name, loss in (("forget", self.forget_loss), ("retain", self.retain_loss)):
            if loss is not None and not math.isfinite(loss):
                return f"the {name} loss is {loss}"
        return None if self.gram.is_finite else "a gradient is not finite"


@dataclass(frozen=True)
class LossesOfStep:
    """L_f and L_r of one step, of which each of several processes computes its part.

    Attributes:
        seed: The run's.
        step: Which step.
        parts: This process's parts of the forget batch and of the retain batch.
        replicas: The processes.
        passes: How forward and backward passes are made.
    """

    seed: int
    step: int
    parts: tuple[Part, Part]
    replicas: Replicas
    passes: Passes

    def gradients(
        self, forget: Loss | None, retain: Loss | None, parameters: Sequence[Tensor], statistics: Sequence[Tensor]
    ) -> list[tuple[Gradient, float | None]]:
        """The gradient and the value of each mean over the whole batch; ``statistics`` become their means."""
        named = zip(("forget", "retain"), (forget, retain), self.parts, strict=True)
        sides = [None if loss is None else self._side(name, loss, part, parameters) for name, loss, part in named]
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
        with drawing_for(*part, self._draws_seed(name)):
            return self.passes.loss(loss)

    def _side(self, name: str, loss: Loss, part: Part, parameters: Sequence[Tensor]) -> Side:
        """How to compute this process's share of a gradient."""
        compute = self._whole_of if self.replicas.size == 1 else self._share_of
        return partial(compute, name, loss, part, parameters)

    def _whole_of(
        self, name: str, loss: Loss, part: Part, parameters: Sequence[Tensor]
    ) -> tuple[Gradient, float | None]:
        """What L_r draws for its samples must not depend on what L_f drew before it: in other processes it has not."""
        if name == "forget":
            return _loss_and_gradient(loss, parameters, self.passes)
        with drawing_for(*part, self._draws_seed(name)):
            return _loss_and_gradient(loss, parameters, self.passes)

    def _share_of(
        self, name: str, loss: Loss, part: Part, parameters: Sequence[Tensor]
    ) -> tuple[Gradient, float | None]:
        """Inside the loss every process draws its own numbers (dropout); outside it all draw the same."""
        if part.share == 0:
            self.passes.stand_by(self.replicas)
            return [None] * len(parameters), 0.0
        with self._drawing(name, part):
            return _loss_and_gradient(loss, parameters, self.passes, part.share, self.replicas)

    def _draws_seed(self, name: str) -> int:
        step = (self.seed, "step", self.step) if name == "forget" else (self.seed, "step", self.step, name)
        return derive(*step)

    @contextmanager
    def _drawing(self, name: str, part: Part) -> Iterator[None]:
        """The random numbers of one side's pass in one of several processes."""
        own = derive(self.seed, "step", self.step, name, "process", self.replicas.rank)
        with isolated(own), drawing_for(*part, self._draws_seed(name)):
            yield


def mean_gradient(
    batches: Iterable[tuple[np.ndarray, Any]],
    samples: int,
    loss: Callable[[Any], Tensor],
    parameters: Sequence[Tensor],
    passes: Passes,
    tell: Callable[[], None],
) -> tuple[Gradient, float]:
    """The gradient and the value of a mean loss, as far as it is over these batches.

    Args:
        batches: (Indices, data) of this process's.
        samples: How many samples the mean is over in all processes.
        loss: The mean over a batch.
        parameters: What to differentiate by.
        passes: How forward and backward passes are made.
        tell: Called after each batch.
    """
    total, mean = [torch.zeros_like(p, requires_grad=False) for p in parameters], 0.0
    for indices, batch in batches:
        # Each process by itself: it may have one batch more than another, and eval mode leaves no trace of a retry.
        gradient, value = _loss_and_gradient(partial(loss, batch), parameters, passes)
        share = len(indices) / samples
        mean += share * value
        for t, g in zip(total, gradient, strict=True):
            if g is not None:
                t.add_(g, alpha=share)
        tell()
    return [*total], mean


def _loss_and_gradient(
    loss: Loss, parameters: Sequence[Tensor], passes: Passes, share: float = 1.0, together: Replicas | None = None
) -> tuple[Gradient, float]:
    """A loss and its gradient, both times ``share``; ``together`` are the processes that all make this pass.

    Scaled before the backward pass: where that itself exchanges gradients (SyncBatchNorm), they must be scaled already.
    """
    with single_samples_refused():
        return passes.loss_and_gradient(loss if share == 1 else lambda: loss() * share, parameters, together)


@contextmanager
def single_samples_refused() -> Iterator[None]:
    """Say what to do where torch says that one sample has no variance."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise GradPivotError(
            "a batch of one sample cannot go through BatchNorm in train mode; use batchnorm='frozen', or have more "
            "than one sample to forget and to keep"
        ) from None
