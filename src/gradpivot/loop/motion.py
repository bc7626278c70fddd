"""Weight updates that can be reverted: optimiser steps and one-shot updates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gradpivot.errors import GradPivotError
from gradpivot.geometry import Room, change_along
from gradpivot.loop.optimizers import DescentRecipe, is_plain_descent, make_optimizer, rate_factor
from gradpivot.runtime import Gradient

__all__ = ["OneShotUpdate", "RevertibleOptimizer", "trainable"]


_SAFE_MOVE = 1e30
"""A step of less than this leaves finite weights finite: half the spacing of the largest float32 numbers is 1e31."""


class RevertibleOptimizer:
    """An optimiser that remembers the weights before its last step."""

    def __init__(self, model: nn.Module, recipe: DescentRecipe, total: int) -> None:
        self.parameters = trainable(model)
        self.max_norm = recipe.max_norm
        self._model = model
        self._optimizer = make_optimizer(self.parameters, recipe)
        self._recipe, self._total = recipe, total
        self._is_plain = is_plain_descent(self.parameters, recipe) and _all_finite(self.parameters)
        self.room = Room(self.parameters)
        self._weights_before = [p.detach().clone() for p in self.parameters]
        self.buffers = list(model.buffers())
        self._buffers_before = [b.detach().clone() for b in self.buffers]
        # Only Retrain has an EMA.
        self._ema: float = getattr(recipe, "ema", 0.0)
        self._average = [p.detach().clone() for p in self.parameters] if self._ema else []

    @torch.no_grad()
    def plain_step(self, number: int, gradient: Gradient, norm: float, rate: float = 1.0) -> float | None:
        """Take the step −λ·g and return λ, if that is all the optimiser does and it keeps the weights finite.

        The step's inner products then follow from the Gram matrix, without a pass over the weights.

        Args:
            number: The step's number, for the schedule.
            gradient: g, zero outside any mask.
            norm: ‖g‖.
            rate: Factor on the learning rate.

        Returns:
            λ, or None if nothing was done: take :meth:`step` instead.
        """
        length = self._start(number, rate) if self._is_plain else math.inf
        if not (length < _SAFE_MOVE and length * norm < _SAFE_MOVE):
            return None
        moving = [(p, g) for p, g in zip(self.parameters, gradient, strict=True) if g is not None]
        # As torch.optim.SGD, bit for bit, without its hooks and records for the profiler.
        torch._foreach_add_(*zip(*moving, strict=True), alpha=-length)
        if self._ema:
            self._update_average(number)
        return length

    @torch.no_grad()
    def step(
        self,
        number: int,
        combined: Gradient,
        kept: Gradient,
        mask: Sequence[Tensor | None] | None,
        *,
        rate: float = 1.0,
        measured: bool = True,
    ) -> tuple[float, float, float]:
        """Take a masked step and return (‖Δθ‖², ⟨Δθ, kept⟩, ⟨Δθ, combined⟩).

        Without ``measured`` these are zeros, or non-finite if a weight is.
        """
        self._start(number, rate)
        for parameter, gradient in zip(self.parameters, combined, strict=True):
            parameter.grad = gradient
        self._optimizer.step()
        if mask is not None:
            self._restore_outside(mask)
        if self._ema:
            self._update_average(number)
        # A float32 norm can overflow although all weights are finite, so fall through to the exact computation.
        if not measured and _all_finite(self.parameters):
            return 0.0, 0.0, 0.0
        return change_along(self._weights_before, self.parameters, kept, combined)

    def _start(self, number: int, rate: float) -> float:
        """Remember weights and buffers, and set and return the learning rate."""
        length = rate * self._recipe.lr * rate_factor(self._recipe.schedule, number / self._total)
        for group in self._optimizer.param_groups:
            group["lr"] = length
        torch._foreach_copy_(self._weights_before, self.parameters)
        if self._buffers_before:
            for before, buffer in zip(self._buffers_before, self._model.buffers(), strict=True):
                before.copy_(buffer)
        return length

    def _update_average(self, number: int) -> None:
        """Update the moving average, with a smaller decay in the first steps."""
        decay = min(self._ema, (1 + number) / (10 + number))
        torch._foreach_lerp_(self._average, [p.detach() for p in self.parameters], 1 - decay)

    @torch.no_grad()
    def load_average(self) -> None:
        """Load the averaged weights into the model, if there are any."""
        if self._ema:
            torch._foreach_copy_([p.detach() for p in self.parameters], self._average)

    def _restore_outside(self, mask: Sequence[Tensor | None]) -> None:
        """Restore masked-out weights, which momentum and weight decay have changed."""
        for parameter, before, inside in zip(self.parameters, self._weights_before, mask, strict=True):
            if inside is not None:
                torch.where(inside, parameter, before, out=parameter)

    @torch.no_grad()
    def restore_last_good(self) -> None:
        """Restore the last weights and buffers with finite losses."""
        for parameter, before in zip(self.parameters, self._weights_before, strict=True):
            parameter.copy_(before)
        for buffer, before in zip(self._model.buffers(), self._buffers_before, strict=True):
            buffer.copy_(before)

    @torch.no_grad()
    def add(self, first: Gradient, second: Gradient, first_share: float, second_share: float) -> None:
        """Add multiples of two gradients to the weights."""
        for gradient, share in ((first, first_share), (second, second_share)):
            for parameter, part in zip(self.parameters, gradient, strict=True):
                if part is not None and share:
                    parameter.add_(part, alpha=share)

    def revert_step(self) -> None:
        """Undo the last step and reset the optimiser state.

        The state of momentum and Adam includes the reverted step, so it is discarded.
        """
        self.restore_last_good()
        self._optimizer.state.clear()

    def state_dict(self) -> dict[str, Any]:
        """Everything the next step depends on."""
        return {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "weights_before": self._weights_before,
            "buffers_before": self._buffers_before,
            "average": self._average,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        torch._foreach_copy_(self._weights_before, state["weights_before"])
        for mine, saved in zip(self._buffers_before, state["buffers_before"], strict=True):
            mine.copy_(saved)
        for mine, saved in zip(self._average, state["average"], strict=True):
            mine.copy_(saved)


class OneShotUpdate:
    """The update of a one-shot method, and the weights before it."""

    def __init__(self, model: nn.Module, total: int) -> None:
        self.parameters = trainable(model)
        self.done, self.total = 0, total
        self._before = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def add(self, update: Sequence[Tensor], first: Gradient, second: Gradient) -> tuple[float, float, float]:
        """Add the update and return (‖Δθ‖², ⟨Δθ, first⟩, ⟨Δθ, second⟩)."""
        for parameter, change in zip(self.parameters, update, strict=True):
            parameter.add_(change)
        return change_along(self._before, self.parameters, first, second)

    @torch.no_grad()
    def restore_last_good(self) -> None:
        """Restore the initial weights. Buffers are unchanged, because the run is in eval mode."""
        for parameter, before in zip(self.parameters, self._before, strict=True):
            parameter.copy_(before)


def _all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether every norm is finite. False for finite numbers whose float32 norm overflows."""
    norms = torch._foreach_norm([tensor.detach() for tensor in tensors])
    return bool(torch.stack([norm.to(norms[0].device, torch.float32) for norm in norms]).isfinite().all())


def trainable(model: nn.Module) -> list[Tensor]:
    """The trainable parameters.

    Raises:
        GradPivotError: If there are none.
    """
    found: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    if not found:
        raise GradPivotError("the model has no trainable parameters; set requires_grad on those to update")
    return found
