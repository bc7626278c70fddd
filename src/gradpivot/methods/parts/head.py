"""A model's last layer: finding it, and giving it one more output for a while."""

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

_NAME = "shadow_class"


def find_head(model: nn.Module, task: Classification, batch: Any, name: str | None = None) -> nn.Linear:
    """The ``nn.Linear`` whose output *is* the model's logits: the same tensor, not an equal one.

    Args:
        model: The model; one forward pass in eval mode is made.
        task: How to run it.
        batch: Something to run it on.
        name: The layer's name in ``model.named_modules()``, for a model that does something to the layer's output.

    Raises:
        GradPivotError: if there is none, if the name is no linear layer's, or if one more output of it is not one
            more output of the model.
    """
    head = _found(model, task, batch) if name is None else _named(model, name)
    before = _width(model, task, batch)
    with extra_output(head, seed=0):
        after = _width(model, task, batch)
    if after != before + 1:
        raise GradPivotError(
            f"with one more output of {name!r} the model has {after} outputs, and {before} without; set head to the "
            f"linear layer that makes the logits"
        )
    return head


@contextmanager
def extra_output(head: nn.Linear, seed: int) -> Iterator[None]:
    """Inside the block the layer has one more output, the last, with weights of its own.

    The layer itself, its weights and its shape stay: a hook appends what a second layer (``nn.Linear``'s default
    initialisation, decided by the seed) makes of the same input. It is a submodule, so that an optimiser, a checkpoint
    and a device see it, and it is gone after the block however that ends.
    """
    if hasattr(head, _NAME):
        raise GradPivotError("the last layer has an extra output already")
    with isolated(seed):
        extra = nn.Linear(
            head.in_features, 1, bias=head.bias is not None, device=head.weight.device, dtype=head.weight.dtype
        )
    head.add_module(_NAME, extra)

    def append(_: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor) -> Tensor:
        return torch.cat([output, extra(*inputs, **named)], dim=-1)

    hook = head.register_forward_hook(append, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()
        delattr(head, _NAME)


def _found(model: nn.Module, task: Classification, batch: Any) -> nn.Linear:
    made: list[tuple[nn.Linear, Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda layer, _, output: made.append((layer, output)))
        for module in model.modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        logits = _logits(model, task, batch)
    finally:
        for hook in hooks:
            hook.remove()
    for layer, output in made:
        # The task may have widened what a half-precision model gives.
        if output is logits or (output.dtype != logits.dtype and torch.equal(output.to(logits.dtype), logits)):
            return layer
    raise GradPivotError(
        "no linear layer's output is the model's logits; set head to the name of the layer that makes them, as in "
        "model.named_modules()"
    )


def _named(model: nn.Module, name: str) -> nn.Linear:
    linear = {known: m for known, m in model.named_modules() if isinstance(m, nn.Linear)}
    if name not in linear:
        raise GradPivotError(
            f"head is {name!r}, and the model's linear layers are {', '.join(map(repr, linear)) or 'none'}; "
            f"name the one that makes the logits"
        )
    return linear[name]


def _width(model: nn.Module, task: Classification, batch: Any) -> int:
    return int(_logits(model, task, batch).shape[-1])


@torch.no_grad()
def _logits(model: nn.Module, task: Classification, batch: Any) -> Tensor:
    model.eval()
    return task.outputs(model, task.adapter(batch)[0])
