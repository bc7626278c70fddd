"""How forward and backward passes are computed: number format, loss scale, compilation.

Only the passes: weights, the gradients that come out, Gram matrices, optimiser steps and evaluation stay as they are.
Micikevicius et al., "Mixed Precision Training" (ICLR 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gradpivot.errors import GradPivotError
from gradpivot.geometry import gradient_of
from gradpivot.runtime import Gradient, Replicas, rewinder

__all__ = ["PRECISIONS", "Passes", "check_precision"]

PRECISIONS = ("float32", "bfloat16", "float16")
"""``float32`` leaves everything as the model has it; the others are autocast around the losses."""

_FIRST_SCALE = 2.0**16
_PASSES_TO_DOUBLE = 2000
_COMPILERS = ("torch._dynamo", "torch._inductor", "torch._functorch")


def check_precision(precision: str) -> None:
    """Raise unless it is one of :data:`PRECISIONS`."""
    if precision not in PRECISIONS:
        raise GradPivotError(f"precision is {precision!r}; choose one of {', '.join(PRECISIONS)}")


class Passes:
    """The forward and backward passes of one run on one model.

    float16 has too little range for small gradients: the loss is multiplied by a scale s, its gradient divided by it.
    Where that overflows the pass is done again with s/2, so that no step is lost; after 2,000 passes without an
    overflow s is doubled. s is a power of two, so scaling rounds nothing. A pass that is done again begins with the
    buffers and random numbers of the first time, so that nothing but s differs.

    Args:
        model: What is run; its call is compiled in place, its ``state_dict`` keeps its names. None for plain passes.
        precision: One of :data:`PRECISIONS`.
        compiled: Whether ``torch.compile`` makes the forward and backward code.
    """

    def __init__(self, model: nn.Module | None = None, precision: str = "float32", compiled: bool = False) -> None:
        check_precision(precision)
        self._dtype = None if precision == "float32" else getattr(torch, precision)
        self._scale = _FIRST_SCALE if precision == "float16" else 1.0
        self._clean = 0
        self._device = "cpu"
        self._compiled: nn.Module | None = None
        self._model = model
        if model is None:
            return
        self._device = next((p.device.type for p in model.parameters()), "cpu")
        if self._dtype is not None:
            _refuse_other_types(model, precision)
        if compiled:
            model.compile()
            self._compiled = model

    def loss_and_gradient(
        self, loss: Callable[[], Tensor], parameters: Sequence[Tensor], together: Replicas | None = None
    ) -> tuple[Gradient, float]:
        """∂loss/∂parameters, None where the loss does not reach, and the loss's value.

        Args:
            loss: Computes it.
            parameters: What to differentiate by.
            together: The processes that make this very pass together: if it overflows in one, all do it again.

        Raises:
            GradPivotError: if the code cannot be compiled, or as :func:`gradpivot.geometry.backward.gradient_of` does.
        """
        try:
            if self._dtype is torch.float16:
                return self._scaled(loss, parameters, together or Replicas())
            with self._forward():
                value = loss()
            return gradient_of(value, parameters), float(value.detach())
        except Exception as error:
            if self._compiled is None or not type(error).__module__.startswith(_COMPILERS):
                raise
            cause = getattr(error, "inner_exception", error)
            told = next((line.strip() for line in str(cause).splitlines() if line.strip()), "")
            raise GradPivotError(
                f"torch.compile failed ({type(cause).__name__}: {told}); run without compile"
            ) from error

    @torch.no_grad()
    def loss(self, loss: Callable[[], Tensor]) -> float:
        """The loss's value alone, in the same number format."""
        with self._forward():
            return float(loss())

    def stand_by(self, together: Replicas) -> None:
        """Keep the others' scale in a pass that this process has no part in."""
        if self._dtype is torch.float16:
            while self._repeats(False, together):
                pass
            self._count()

    def release(self) -> None:
        """Give the model its ordinary call back."""
        if self._compiled is not None:
            # There is no public way back; this is what copying a compiled module leaves out.
            self._compiled._compiled_call_impl = None

    def state_dict(self) -> dict[str, Any]:
        """What the next pass depends on."""
        return {"scale": self._scale, "clean": self._clean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self._scale, self._clean = state["scale"], state["clean"]

    def _forward(self) -> torch.autocast:
        return torch.autocast(self._device, dtype=self._dtype, enabled=self._dtype is not None)

    def _scaled(
        self, loss: Callable[[], Tensor], parameters: Sequence[Tensor], together: Replicas
    ) -> tuple[Gradient, float]:
        """The pass with the loss times the scale, and again until the gradient is one to use: finite or beyond help."""
        rewind, buffers = rewinder(), [buffer.clone() for buffer in self._buffers()]
        while True:
            with self._forward():
                value = loss()
            gradient, number = gradient_of(value * self._scale, parameters), float(value.detach())
            present = [g for g in gradient if g is not None]
            overflow = math.isfinite(number) and not all(bool(g.isfinite().all()) for g in present)
            if not self._repeats(overflow, together):
                torch._foreach_mul_(present, 1 / self._scale)
                self._count()
                return gradient, number
            rewind()
            for buffer, before in zip(self._buffers(), buffers, strict=True):
                buffer.copy_(before)

    def _repeats(self, overflow: bool, together: Replicas) -> bool:
        """Whether the pass is to be done again, by all alike; then with half the scale."""
        if not together.anywhere(overflow and self._scale > 1, self._device):
            return False
        self._scale, self._clean = max(self._scale / 2, 1.0), 0
        return True

    def _count(self) -> None:
        self._clean += 1
        if self._clean == _PASSES_TO_DOUBLE:
            self._scale, self._clean = self._scale * 2, 0

    def _buffers(self) -> list[Tensor]:
        return [buffer.detach() for buffer in self._model.buffers()] if self._model is not None else []


def _refuse_other_types(model: nn.Module, precision: str) -> None:
    """Autocast leaves float64 alone, silently; half-precision weights would lose the updates."""
    for name, parameter in model.named_parameters():
        if parameter.dtype is not torch.float32:
            raise GradPivotError(
                f"precision is {precision}, but the weight {name} is {str(parameter.dtype).removeprefix('torch.')}; "
                f"use precision='float32', which computes in the model's own format, or model.float()"
            )
