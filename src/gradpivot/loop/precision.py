"""Forward and backward passes: precision, loss scaling, compilation.

Only the passes are affected. Weights, gradients, Gram matrices, optimiser steps and evaluation keep their precision.
Micikevicius et al., "Mixed Precision Training" (ICLR 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from gradpivot.errors import GradPivotError
from gradpivot.geometry import plain_gradient
from gradpivot.runtime import Gradient, Replicas, rewinder

__all__ = ["PRECISIONS", "Passes", "check_precision", "explain_single_samples"]

PRECISIONS = ("float32", "bfloat16", "float16")
"""``float32`` keeps the model's own dtype; the others use autocast for the losses."""

_INITIAL_SCALE = 2.0**16
_GROWTH_INTERVAL = 2000
_AS_IT_IS = nullcontext()
_COMPILERS = ("torch._dynamo", "torch._inductor", "torch._functorch")


def check_precision(precision: str) -> None:
    """Raise unless ``precision`` is one of :data:`PRECISIONS`."""
    if precision not in PRECISIONS:
        raise GradPivotError(f"precision is {precision!r}; choose one of {', '.join(PRECISIONS)}")


class Passes:
    """The forward and backward passes of one run on one model.

    Small gradients underflow in float16, so the loss is multiplied by a scale s and the gradient divided by it. On
    overflow the pass is repeated with s/2, from the same buffers and random numbers, so that no step is lost. After
    2,000 passes without overflow s doubles. s is a power of two, so scaling is exact.

    Args:
        model: The model, compiled in place if requested; its ``state_dict`` keys do not change. None for plain passes.
        precision: One of :data:`PRECISIONS`.
        compiled: Whether to use ``torch.compile``.
    """

    def __init__(self, model: nn.Module | None = None, precision: str = "float32", compiled: bool = False) -> None:
        check_precision(precision)
        self._dtype = None if precision == "float32" else getattr(torch, precision)
        self._scale = _INITIAL_SCALE if precision == "float16" else 1.0
        self._clean = 0
        self._device = "cpu"
        self._compiled: nn.Module | None = None
        self._model = model
        if model is None:
            return
        self._device = next((p.device.type for p in model.parameters()), "cpu")
        if self._dtype is not None:
            _check_float32(model, precision)
        if compiled:
            model.compile()
            self._compiled = model

    def loss_and_gradient(
        self, loss: Callable[[], Tensor], parameters: Sequence[Tensor], together: Replicas | None = None
    ) -> tuple[Gradient, float]:
        """The gradient (None for parameters that the loss does not depend on) and the value of a loss.

        Args:
            loss: Computes the loss.
            parameters: The parameters to differentiate by.
            together: The processes that make this pass jointly: if it overflows in one, all repeat it.

        Raises:
            GradPivotError: If compilation fails, or from :func:`gradpivot.geometry.plain_gradient`.
        """
        try:
            if self._dtype is torch.float16:
                return self._scaled(loss, parameters, together or Replicas())
            with self._forward():
                value = loss()
            return plain_gradient(value, parameters), value.item()
        except Exception as error:
            if self._compiled is None or not type(error).__module__.startswith(_COMPILERS):
                _explain(error)
                raise
            cause = getattr(error, "inner_exception", error)
            message = next((line.strip() for line in str(cause).splitlines() if line.strip()), "")
            raise GradPivotError(
                f"torch.compile failed ({type(cause).__name__}: {message}); run without compile"
            ) from error

    @torch.no_grad()
    def loss(self, loss: Callable[[], Tensor]) -> float:
        """The value of a loss, without its gradient, in the same precision."""
        with self._forward():
            return float(loss())

    def sync_scale(self, together: Replicas) -> None:
        """Update the loss scale along with the others in a pass that this process has no samples for."""
        if self._dtype is torch.float16:
            while self._should_retry(False, together):
                pass
            self._count()

    def release(self) -> None:
        """Undo the compilation of the model's call."""
        if self._compiled is not None:
            # There is no public API for this; deepcopy drops the same attribute.
            self._compiled._compiled_call_impl = None

    def state_dict(self) -> dict[str, Any]:
        """State that the next pass depends on."""
        return {"scale": self._scale, "clean": self._clean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from :meth:`state_dict`."""
        self._scale, self._clean = state["scale"], state["clean"]

    def _forward(self) -> AbstractContextManager[object]:
        if self._dtype is None and not torch.is_autocast_enabled(self._device):
            return _AS_IT_IS
        return torch.autocast(self._device, dtype=self._dtype, enabled=self._dtype is not None)

    def _scaled(
        self, loss: Callable[[], Tensor], parameters: Sequence[Tensor], together: Replicas
    ) -> tuple[Gradient, float]:
        """Repeat the scaled pass until the gradient is finite or the scale is 1."""
        rewind, buffers = rewinder(), [buffer.clone() for buffer in self._buffers()]
        while True:
            with self._forward():
                value = loss()
            gradient, number = plain_gradient(value * self._scale, parameters), value.item()
            present = [g for g in gradient if g is not None]
            overflow = math.isfinite(number) and not all(bool(g.isfinite().all()) for g in present)
            if not self._should_retry(overflow, together):
                torch._foreach_mul_(present, 1 / self._scale)
                self._count()
                return gradient, number
            rewind()
            for buffer, before in zip(self._buffers(), buffers, strict=True):
                buffer.copy_(before)

    def _should_retry(self, overflow: bool, together: Replicas) -> bool:
        """Whether all processes must repeat the pass; halves the scale if so."""
        if not together.any_process(overflow and self._scale > 1, self._device):
            return False
        self._scale, self._clean = max(self._scale / 2, 1.0), 0
        return True

    def _count(self) -> None:
        self._clean += 1
        if self._clean == _GROWTH_INTERVAL:
            self._scale, self._clean = self._scale * 2, 0

    def _buffers(self) -> list[Tensor]:
        return [buffer.detach() for buffer in self._model.buffers()] if self._model is not None else []


def _check_float32(model: nn.Module, precision: str) -> None:
    """Raise unless all weights are float32: autocast ignores float64, and half-precision weights lose small updates."""
    for name, parameter in model.named_parameters():
        if parameter.dtype is not torch.float32:
            raise GradPivotError(
                f"precision is {precision}, but the weight {name} is {str(parameter.dtype).removeprefix('torch.')}; "
                f"use precision='float32' to keep the model's dtype, or call model.float()"
            )


@contextmanager
def explain_single_samples() -> Iterator[None]:
    """Replace torch's error about a batch of one sample in BatchNorm by one with a way out."""
    try:
        yield
    except ValueError as error:
        _explain(error)
        raise


def _explain(error: Exception) -> None:
    """Raise an error with a way out instead of torch's about a batch of one sample."""
    if isinstance(error, ValueError) and "more than 1 value per channel" in str(error):
        raise GradPivotError(
            "BatchNorm in train mode needs more than one sample per batch; use batchnorm='frozen' or another batch_size"
        ) from None
