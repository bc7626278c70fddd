"""The weights in motion: one optimiser on one model, or one update, with the way back to the last good weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gradpivot.errors import GradPivotError
from gradpivot.geometry import change_along
from gradpivot.loop.optimizers import DescentRecipe, make_optimizer, rate_factor
from gradpivot.runtime import Gradient

__all__ = ["Descending", "Move", "trainable"]


class Descending:
    """One optimiser on one model, with the weights as they were before its last step."""

    def __init__(self, model: nn.Module, recipe: DescentRecipe, total: int) -> None:
        self.parameters = trainable(model)
        self.max_norm = recipe.max_norm
        self._model = model
        self._optimizer = make_optimizer(self.parameters, recipe)
        self._recipe, self._total = recipe, total
        self._weights_before = [p.detach().clone() for p in self.parameters]
        self.buffers = list(model.buffers())
        self._buffers_before = [b.detach().clone() for b in self.buffers]
        # Only training has it, so only its recipe.
        self._ema: float = getattr(recipe, "ema", 0.0)
        self._average = [p.detach().clone() for p in self.parameters] if self._ema else []

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
        """Step inside the mask, then (‖Δθ‖², ⟨Δθ, kept⟩, ⟨Δθ, combined⟩).

        Where it need not be ``measured``, the first only says by being finite that the new weights are.
        """
        for group in self._optimizer.param_groups:
            group["lr"] = rate * self._recipe.lr * rate_factor(self._recipe.schedule, number / self._total)
        torch._foreach_copy_(self._weights_before, [p.detach() for p in self.parameters])
        for before, buffer in zip(self._buffers_before, self._model.buffers(), strict=True):
            before.copy_(buffer)
        for parameter, gradient in zip(self.parameters, combined, strict=True):
            parameter.grad = gradient
        self._optimizer.step()
        if mask is not None:
            self._put_back_outside(mask)
        if self._ema:
            self._follow(number)
        # A float32 norm may overflow where no weight has; only the exact one decides.
        if not measured and bool(torch.stack(_norms(self.parameters)).isfinite().all()):
            return 0.0, 0.0, 0.0
        return change_along(self._weights_before, self.parameters, kept, combined)

    def _follow(self, number: int) -> None:
        """Move the average after the weights; at first faster, so that it forgets where they began."""
        decay = min(self._ema, (1 + number) / (10 + number))
        torch._foreach_lerp_(self._average, [p.detach() for p in self.parameters], 1 - decay)

    @torch.no_grad()
    def take_average(self) -> None:
        """Give the model the average of its weights over the run, if the recipe asks for one."""
        if self._ema:
            torch._foreach_copy_([p.detach() for p in self.parameters], self._average)

    def _put_back_outside(self, mask: Sequence[Tensor | None]) -> None:
        """Undo what momentum and weight decay did to weights that may not change."""
        for parameter, before, inside in zip(self.parameters, self._weights_before, mask, strict=True):
            if inside is not None:
                torch.where(inside, parameter, before, out=parameter)

    @torch.no_grad()
    def restore_last_good(self) -> None:
        """Go back to the weights and buffers for which the losses were last known to be finite."""
        for parameter, before in zip(self.parameters, self._weights_before, strict=True):
            parameter.copy_(before)
        for buffer, before in zip(self._model.buffers(), self._buffers_before, strict=True):
            buffer.copy_(before)

    @torch.no_grad()
    def add(self, first: Gradient, second: Gradient, first_share: float, second_share: float) -> None:
        """Add shares of two gradients to the weights."""
        for gradient, share in ((first, first_share), (second, second_share)):
            for parameter, part in zip(self.parameters, gradient, strict=True):
                if part is not None and share:
                    parameter.add_(part, alpha=share)

    def take_back(self) -> None:
        """Undo the last step: its weights and buffers, and what momentum and Adam remember of all steps so far.

        Their memory holds the step that went wrong; without it they begin anew, as at the start of a run.
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


class Move:
    """The one update of a one-shot method, and the weights before it."""

    def __init__(self, model: nn.Module, total: int) -> None:
        self.parameters = trainable(model)
        self.done, self.total = 0, total
        self._before = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def add(self, update: Sequence[Tensor], first: Gradient, second: Gradient) -> tuple[float, float, float]:
        """Update, then (‖Δθ‖², ⟨Δθ, first⟩, ⟨Δθ, second⟩)."""
        for parameter, change in zip(self.parameters, update, strict=True):
            parameter.add_(change)
        return change_along(self._before, self.parameters, first, second)

    @torch.no_grad()
    def restore_last_good(self) -> None:
        """Go back to the weights the run began with; eval mode has left the buffers alone."""
        for parameter, before in zip(self.parameters, self._before, strict=True):
            parameter.copy_(before)


def _norms(tensors: Sequence[Tensor]) -> list[Tensor]:
    """‖·‖ of each, on one device; a NaN or an infinity anywhere shows."""
    norms = torch._foreach_norm([tensor.detach() for tensor in tensors])
    return [norm.to(norms[0].device, torch.float32) for norm in norms]


def trainable(model: nn.Module) -> list[Tensor]:
    """The weights that may change.

    Raises:
        GradPivotError: if there is none.
    """
    found: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    if not found:
        raise GradPivotError("the model has no trainable parameter; set requires_grad on what may change")
    return found
