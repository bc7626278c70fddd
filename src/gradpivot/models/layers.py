"""A model's layers in the order in which a forward pass uses them.

A layer is a module with a weight matrix of its own, and the modules after it that have only vectors (normalisation).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from gradpivot.errors import GradPivotError
from gradpivot.runtime import evaluating

__all__ = ["last_layers"]


def last_layers(model: nn.Module, forward: Callable[[], object], count: int) -> tuple[str, ...]:
    """Names of the modules in the last ``count`` layers, in the order of use.

    Args:
        model: The model.
        forward: Runs the model once on any batch; called in eval mode, without gradients.
        count: Number of layers; all of them if the model has fewer.

    Raises:
        GradPivotError: If the model has no layer.
    """
    layers = _layers(model, _order_of_use(model, forward))
    if not layers:
        raise GradPivotError("the model has no layer with a weight matrix, such as nn.Linear or nn.Conv2d")
    return tuple(name for layer in layers[-count:] for name in layer)


@torch.no_grad()
def _order_of_use(model: nn.Module, forward: Callable[[], object]) -> list[str]:
    """Names of the modules that the pass calls, each at its first call."""
    used: dict[str, None] = {}
    hooks = [
        module.register_forward_pre_hook(lambda *_, name=name: used.setdefault(name))
        for name, module in model.named_modules()
    ]
    try:
        with evaluating(model):
            forward()
    finally:
        for hook in hooks:
            hook.remove()
    return list(used)


def _layers(model: nn.Module, used: list[str]) -> list[list[str]]:
    """Names of the modules of each layer; vectors before the first weight matrix belong to none."""
    layers: list[list[str]] = []
    for name in used:
        owned = _owned(model, name, used)
        parameters = [p for owner in owned for p in model.get_submodule(owner).parameters(recurse=False)]
        if any(parameter.ndim > 1 for parameter in parameters):
            layers.append(owned)
        elif parameters and layers:
            layers[-1] += owned
    return layers


def _owned(model: nn.Module, name: str, used: list[str]) -> list[str]:
    """A module and those below it that are used without being called, such as the projection of an attention layer."""
    owned = [name]
    for child, _ in model.get_submodule(name).named_children():
        path = f"{name}.{child}" if name else child
        if path not in used:
            owned += _owned(model, path, used)
    return owned
