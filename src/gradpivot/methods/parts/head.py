"""Find a model's last layer and temporarily add an output to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gradpivot.errors import GradPivotError
from gradpivot.runtime import isolated

if TYPE_CHECKING:
    from gradpivot.tasks import Classification

__all__ = ["extra_output", "find_head"]

_SUBMODULE = "shadow_class"


def find_head(model: nn.Module, task: Classification, batch: Any, name: str | None = None) -> nn.Linear:
    """Find the ``nn.Linear`` whose output tensor is the model's logits.

    Args:
        model: The model; runs forward passes in eval mode.
        task: Runs the model.
        batch: Any batch.
        name: The layer's name in ``model.named_modules()``, for a model that post-processes the layer's output.

    Raises:
        GradPivotError: If no layer is found, if the name is not that of a linear layer, or if an extra output of the
            layer is not an extra output of the model.
    """
    head = _find_by_output(model, task, batch) if name is None else _find_by_name(model, name)
    before = _width(model, task, batch)
    with extra_output(head, seed=0):
        after = _width(model, task, batch)
    if after != before + 1:
        raise GradPivotError(
            f"with an extra output of {name!r} the model has {after} outputs instead of {before + 1}; set head to the "
            f"linear layer that computes the logits"
        )
    return head


@contextmanager
def extra_output(head: nn.Linear, seed: int) -> Iterator[None]:
    """Append an output to the layer inside the block.

    The layer is not modified: a forward hook appends the output of a second ``nn.Linear`` (default initialisation from
    the seed) on the same input. That layer is a submodule, so optimisers and checkpoints see it.
    """
    if hasattr(head, _SUBMODULE):
        raise GradPivotError("the last layer already has an extra output")
    with isolated(seed):
        extra = nn.Linear(
            head.in_features, 1, bias=head.bias is not None, device=head.weight.device, dtype=head.weight.dtype
        )
    head.add_module(_SUBMODULE, extra)

    def append(_: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor) -> Tensor:
        return torch.cat([output, extra(*inputs, **named)], dim=-1)

    hook = head.register_forward_hook(append, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()
        delattr(head, _SUBMODULE)


def _find_by_output(model: nn.Module, task: Classification, batch: Any) -> nn.Linear:
    outputs: list[tuple[nn.Linear, Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda layer, _, output: outputs.append((layer, output)))
        for module in model.modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        logits = _logits(model, task, batch)
    finally:
        for hook in hooks:
            hook.remove()
    for layer, output in outputs:
        # The task casts half-precision logits to float32.
        if output is logits or (output.dtype != logits.dtype and torch.equal(output.to(logits.dtype), logits)):
            return layer
    raise GradPivotError(
        "cannot find the linear layer that computes the logits; set head to its name in model.named_modules()"
    )


def _find_by_name(model: nn.Module, name: str) -> nn.Linear:
    linear = {known: m for known, m in model.named_modules() if isinstance(m, nn.Linear)}
    if name not in linear:
        raise GradPivotError(
            f"head is {name!r}, but the model's linear layers are {', '.join(map(repr, linear)) or 'none'}; "
            f"choose the one that computes the logits"
        )
    return linear[name]


def _width(model: nn.Module, task: Classification, batch: Any) -> int:
    return int(_logits(model, task, batch).shape[-1])


@torch.no_grad()
def _logits(model: nn.Module, task: Classification, batch: Any) -> Tensor:
    model.eval()
    return task.outputs(model, task.adapter(batch)[0])
