"""Optimisers and learning-rate schedules by name, built on torch.optim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from gradpivot.errors import GradPivotError

__all__ = ["OPTIMIZERS", "SCHEDULES", "DescentRecipe", "make_optimizer", "rate_factor"]

OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "cosine", "one_cycle")

WARM_UP = 0.2
"""The share of a ``one_cycle`` run in which the learning rate rises; it falls for the rest."""
_FIRST_RATE = 0.04


class DescentRecipe(Protocol):
    """The fields of a method that describe its descent; :class:`gradpivot.methods.method.Descent` has them."""

    @property
    def lr(self) -> float:
        """Learning rate λ."""
        ...

    @property
    def epochs(self) -> int:
        """Passes over the data."""
        ...

    @property
    def batch_size(self) -> int | None:
        """Samples a batch, or None for a size that suits the forget set."""
        ...

    @property
    def retain_batch_size(self) -> int | None:
        """Retain samples beside each forget batch, or None for as many as that has."""
        ...

    @property
    def augment(self) -> str | None:
        """One of :data:`gradpivot.data.augmentation.AUGMENTATIONS`, or None for none."""
        ...

    @property
    def optimizer(self) -> str:
        """One of ``OPTIMIZERS``."""
        ...

    @property
    def momentum(self) -> float:
        """Of SGD."""
        ...

    @property
    def weight_decay(self) -> float:
        """Of every optimiser."""
        ...

    @property
    def schedule(self) -> str:
        """One of ``SCHEDULES``."""
        ...

    @property
    def batchnorm(self) -> str:
        """One of :data:`gradpivot.loop.normalisation.POLICIES`."""
        ...

    @property
    def max_norm(self) -> float | None:
        """Limit on the length of the combined gradient."""
        ...


def make_optimizer(parameters: Sequence[Tensor], recipe: DescentRecipe) -> torch.optim.Optimizer:
    """The optimiser a recipe names: ``sgd`` (with momentum), ``adam`` or ``adamw``.

    Fused where that can be: one pass over the weights, and no temporary copy of the gradient. The numbers are those of
    the unfused steps to rounding, and the same bits every time.
    """
    fused = _fusible(parameters)
    optimizer: torch.optim.Optimizer
    if recipe.optimizer == "sgd":
        optimizer = torch.optim.SGD(
            parameters,
            lr=recipe.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            # Only training has it, so only its recipe.
            nesterov=getattr(recipe, "nesterov", False),
            fused=fused,
            foreach=not fused,
        )
    elif recipe.optimizer in ("adam", "adamw"):
        kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
        optimizer = kind(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=fused, foreach=not fused)
    else:
        raise GradPivotError(f"there is no optimizer {recipe.optimizer!r}; choose one of {', '.join(OPTIMIZERS)}")
    optimizer.register_step_pre_hook(_lay_alike)
    return optimizer


def _fusible(parameters: Sequence[Tensor]) -> bool:
    """Whether torch's fused kernels can be trusted with these: plain dense float32 or float64 on a CPU or CUDA.

    Not shards or quantised weights. Not bfloat16: torch 2.13's fused SGD on a CPU gets its momentum wrong (weights off
    by forty times the rounding of the unfused steps).
    """
    return all(
        type(p) in (Tensor, torch.nn.Parameter)
        and p.device.type in ("cpu", "cuda")
        and p.dtype in (torch.float32, torch.float64)
        # What has gaps or overlaps cannot be laid out again.
        and torch.empty_like(p, device="meta").stride() == p.stride()
        for p in parameters
    )


def _lay_alike(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Give gradients and momenta the layout of their weights before a step.

    Fused kernels walk through memory without a look at strides (CPU, torch 2.13: no error, wrong weights), or refuse
    (CUDA). Gradients from autograd lie right; one that somebody made, or a state that was saved in another memory
    format, need not.
    """
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        if parameter.grad is not None:
            parameter.grad = _laid_like(parameter, parameter.grad)
        state = optimizer.state.get(parameter, {})
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                state[name] = _laid_like(parameter, value)


def _laid_like(parameter: Tensor, value: Tensor) -> Tensor:
    if value.stride() == parameter.stride():
        return value
    return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)


def rate_factor(schedule: str, progress: float) -> float:
    """What the learning rate is multiplied with when a fraction ``progress`` of the steps is done.

    A function of the position alone, so that a resumed run needs no scheduler state and a skipped step changes nothing.
    ``one_cycle`` is Smith & Topin's super-convergence (2018) with straight lines: up from 4 % of the rate to all of it
    in the first fifth of the run, then down to zero.
    """
    if schedule == "constant":
        return 1.0
    if schedule == "cosine":
        return (1 + math.cos(math.pi * progress)) / 2
    if schedule == "one_cycle":
        rising = _FIRST_RATE + (1 - _FIRST_RATE) * progress / WARM_UP
        return min(rising, (1 - progress) / (1 - WARM_UP))
    raise GradPivotError(f"there is no schedule {schedule!r}; choose one of {', '.join(SCHEDULES)}")
