"""Optimisers and learning-rate schedules by name, built on torch.optim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from gradpivot.errors import GradPivotError

__all__ = ["OPTIMIZERS", "SCHEDULES", "DescentRecipe", "is_plain_descent", "make_optimizer", "rate_factor"]

OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "cosine", "one_cycle")

WARM_UP = 0.2
"""Fraction of a ``one_cycle`` run over which the learning rate rises."""
_INITIAL_FACTOR = 0.04


class DescentRecipe(Protocol):
    """Training settings of a method; implemented by :class:`gradpivot.methods.method.Descent`."""

    @property
    def lr(self) -> float:
        """Learning rate."""
        ...

    @property
    def epochs(self) -> int:
        """Passes over the data."""
        ...

    @property
    def batch_size(self) -> int | None:
        """Batch size, or None for one based on the size of the forget set."""
        ...

    @property
    def retain_batch_size(self) -> int | None:
        """Retain samples per step, or None for the size of the forget batch."""
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
        """SGD momentum."""
        ...

    @property
    def weight_decay(self) -> float:
        """Weight decay."""
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
        """Maximum norm of the combined gradient, or None."""
        ...


def make_optimizer(parameters: Sequence[Tensor], recipe: DescentRecipe) -> torch.optim.Optimizer:
    """Create the optimiser of a recipe: ``sgd``, ``adam`` or ``adamw``.

    Uses fused kernels where possible: one pass over the weights and no temporary copy of the gradient. They are
    deterministic and equal to the unfused ones up to rounding.
    """
    fused = _fusible(parameters)
    optimizer: torch.optim.Optimizer
    if recipe.optimizer == "sgd":
        optimizer = torch.optim.SGD(
            parameters,
            lr=recipe.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            # Only Retrain has this field.
            nesterov=getattr(recipe, "nesterov", False),
            fused=fused,
            foreach=not fused,
        )
    elif recipe.optimizer in ("adam", "adamw"):
        kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
        optimizer = kind(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=fused, foreach=not fused)
    else:
        raise GradPivotError(f"unknown optimizer {recipe.optimizer!r}; choose one of {', '.join(OPTIMIZERS)}")
    optimizer.register_step_pre_hook(_match_layouts)
    return optimizer


def is_plain_descent(parameters: Sequence[Tensor], recipe: DescentRecipe) -> bool:
    """Whether a step is exactly θ − λ·g: SGD without momentum and weight decay, in float32 or float64.

    In half precision rounding loses part of a step.
    """
    return recipe.optimizer == "sgd" and recipe.momentum == recipe.weight_decay == 0 and _fusible(parameters)


def _fusible(parameters: Sequence[Tensor]) -> bool:
    """Whether fused kernels are safe: plain dense float32 or float64 tensors on CPU or CUDA.

    Excludes sharded and quantised weights, and bfloat16: torch 2.13's fused SGD on CPU computes wrong momentum for it
    (error 40 times the rounding of unfused steps).
    """
    return all(
        type(p) in (Tensor, torch.nn.Parameter)
        and p.device.type in ("cpu", "cuda")
        and p.dtype in (torch.float32, torch.float64)
        # A layout with gaps or overlaps cannot be reproduced.
        and torch.empty_like(p, device="meta").stride() == p.stride()
        for p in parameters
    )


def _match_layouts(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Convert gradients and optimiser state to the memory layout of their weights before a step.

    Fused kernels ignore strides (CPU, torch 2.13: silently wrong weights) or raise (CUDA). Gradients from autograd have
    the right layout; hand-made ones, or state saved in another memory format, may not.
    """
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        if parameter.grad is not None:
            parameter.grad = _with_layout_of(parameter, parameter.grad)
        state = optimizer.state.get(parameter, {})
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                state[name] = _with_layout_of(parameter, value)


def _with_layout_of(parameter: Tensor, value: Tensor) -> Tensor:
    if value.stride() == parameter.stride():
        return value
    return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)


def rate_factor(schedule: str, progress: float) -> float:
    """Learning-rate factor after a fraction ``progress`` of the steps.

    It depends on the position only, so a resumed run needs no scheduler state. ``one_cycle`` is the linear form of
    Smith & Topin's super-convergence (2018): from 4 % up to the full rate in the first fifth of the run, then down to
    zero.
    """
    if schedule == "constant":
        return 1.0
    if schedule == "cosine":
        return (1 + math.cos(math.pi * progress)) / 2
    if schedule == "one_cycle":
        rising = _INITIAL_FACTOR + (1 - _INITIAL_FACTOR) * progress / WARM_UP
        return min(rising, (1 - progress) / (1 - WARM_UP))
    raise GradPivotError(f"unknown schedule {schedule!r}; choose one of {', '.join(SCHEDULES)}")
