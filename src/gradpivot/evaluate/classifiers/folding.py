"""A private copy of a model that computes the same, faster: BatchNorm folded away, convolutions channels last.

In eval mode BatchNorm is a fixed map per channel, so that after a convolution or a linear layer W x + b it can be
multiplied into it (Jacob et al., 2018, "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", section 3.2; exact, but for rounding):

    BN(W x + b) = s (W x + b − μ) + β = (s W) x + s (b − μ) + β,    s = γ / sqrt(σ² + ε).

Which BatchNorm follows which layer is read off a trace of the model (torch.fx), never guessed from names or order. The
copy then runs the model's own ``forward``, and only after it has given the same outputs on a few real samples.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from gradpivot.tasks import Task

__all__ = ["Pair", "fold", "foldable", "may_gain", "quick_copy"]

Pair = tuple[str, str]
"""The names of a convolution or linear layer and of the BatchNorm that follows it."""

# The exact classes: a subclass, a parametrised layer too, may compute something else.
_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)

# In half precision the folded weights would be rounded more coarsely than BatchNorm computes.
_DTYPES = (torch.float32, torch.float64)

# How far the copy's outputs may be off, as a share of the largest: what float32 rounds in some hundred layers.
_TOLERANCE = 1e-4


@torch.no_grad()
def quick_copy(model: nn.Module, task: Task, batch: Any) -> nn.Module | None:
    """A copy that computes what ``model`` does in eval mode, but faster; None if there is none to be had.

    Args:
        model: In eval mode; it is neither changed nor kept.
        task: How to run it on a batch.
        batch: A few samples; the copy must give the same outputs on them.

    Returns:
        The copy, or None where nothing would be gained (networks without convolutions), or where it cannot be told
        that it computes the same: models with hooks (which may look at what is folded away), compiled, wrapped for
        several processes or in half precision, that cannot be copied, or whose outputs on ``batch`` differ by more
        than rounding. A model that cannot be traced keeps its BatchNorm and only has its convolutions laid out
        channels last.
    """
    if not may_gain(model):
        return None
    try:
        pairs = foldable(model)
        expected, pairs = _told(copy.deepcopy(model), task, batch, pairs)
        images = any(type(module) is nn.Conv2d for module in model.modules())
        # Code that asks for .view() of a convolution's output does not run channels last.
        for last in (True, False) if images else (False,):
            quick = copy.deepcopy(model)
            fold(quick, pairs)
            if last:
                _channels_last(quick)
            if (last or pairs) and _agrees(quick, task, batch, expected):
                return quick
    except Exception:  # a model's own code, copied, may raise anything; then it runs as it is
        pass
    return None


def foldable(model: nn.Module) -> list[Pair]:
    """Which BatchNorm layers can be folded into the layer before them, as (layer, BatchNorm) by name.

    A pair is one only if the trace of the model's ``forward`` proves it: the BatchNorm is called once, on nothing but
    the output of that layer, which is called once and read by nobody else; neither is registered in a second place or
    has its tensors read directly; and the BatchNorm uses running statistics. The model must be in eval mode.

    Returns:
        The pairs; empty if there are none or the model cannot be traced (control flow that depends on its inputs).
    """
    try:
        # A copy: what a forward leaves behind in its modules would be proxies.
        graph = _Tracer().trace(copy.deepcopy(model))
    except Exception:  # proxies raise whatever a forward makes of them
        return []
    modules = dict(model.named_modules())
    places = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    calls = Counter(node.target for node in graph.nodes if node.op == "call_module")
    read = {str(node.target).rpartition(".")[0] for node in graph.nodes if node.op == "get_attr"}

    def is_once(name: str) -> bool:
        return calls[name] == 1 and places[id(modules[name])] == 1 and name not in read

    return [
        (layer, norm)
        for layer, norm in _adjacent(graph)
        if is_once(layer) and is_once(norm) and _fit(modules[layer], modules[norm])
    ]


@torch.no_grad()
def fold(model: nn.Module, pairs: Sequence[Pair]) -> None:
    """Multiply BatchNorm layers into the layers before them, in place; computed in float64, rounded once."""
    for layer_name, norm_name in pairs:
        layer, norm = model.get_submodule(layer_name), model.get_submodule(norm_name)
        assert isinstance(layer, _LAYERS)
        assert isinstance(norm, _NORMS)
        weight, bias = _folded(layer, norm)
        # New parameters: others may share the old ones.
        layer.weight = nn.Parameter(weight, requires_grad=False)
        layer.bias = nn.Parameter(bias, requires_grad=False)
        parent, _, name = norm_name.rpartition(".")
        setattr(model.get_submodule(parent), name, nn.Identity())


def _folded(layer: Any, norm: Any) -> tuple[Tensor, Tensor]:
    mean, variance = norm.running_mean.double(), norm.running_var.double()
    scale = (variance + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight.double()
    bias = -mean if layer.bias is None else layer.bias.double() - mean
    shift = 0 if norm.bias is None else norm.bias.double()
    weight = layer.weight.double() * scale.reshape(-1, *[1] * (layer.weight.ndim - 1))
    return weight.to(layer.weight.dtype), (scale * bias + shift).to(layer.weight.dtype)


class _Tracer(fx.Tracer):
    """Looks only into what has a BatchNorm inside: other modules may branch on their inputs as they like."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        inside = any(isinstance(part, _BatchNorm) for part in m.modules())
        return not inside or super().is_leaf_module(m, module_qualified_name)


def _adjacent(graph: fx.Graph) -> Iterator[Pair]:
    """Calls of one module on nothing but the output of another one that nobody else reads."""
    for node in graph.nodes:
        if node.op != "call_module" or len(node.args) != 1 or node.kwargs:
            continue
        before = node.args[0]
        if isinstance(before, fx.Node) and before.op == "call_module" and len(before.users) == 1:
            yield str(before.target), str(node.target)


def _fit(layer: nn.Module, norm: nn.Module) -> bool:
    if type(layer) not in _LAYERS or type(norm) not in _NORMS:
        return False
    return not norm.training and norm.running_mean is not None and norm.running_var is not None


def may_gain(model: nn.Module) -> bool:
    """Whether there is something to make faster, and nothing that a copy could get wrong."""
    modules = list(model.modules())
    # Without convolutions BatchNorm costs next to nothing, and three copies of the model cost something.
    if not any(type(module) in _LAYERS and type(module) is not nn.Linear for module in modules):
        return False
    if hasattr(model, "_orig_mod") or isinstance(model, nn.parallel.DistributedDataParallel):
        return False
    if any(module._forward_hooks or module._forward_pre_hooks for module in modules):
        return False
    return all(type(p) in (nn.Parameter, Tensor) and p.dtype in _DTYPES for p in model.parameters())


def _channels_last(model: nn.Module) -> None:
    for module in model.modules():
        if type(module) is nn.Conv2d:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _told(model: nn.Module, task: Task, batch: Any, pairs: Sequence[Pair]) -> tuple[list[Tensor], list[Pair]]:
    """What a copy puts out on a batch, and those pairs whose layer puts out (n, channels, …).

    After a linear layer on (n, c, l) BatchNorm1d scales the channels c, but the layer's weights make the axis l; after
    a convolution of one image without a batch axis it is no better. The trace knows no shapes.
    """
    batched: dict[str, bool] = {}

    def note(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda module, inputs, output: batched.update({name: output.ndim == module.weight.ndim})

    for name, _ in pairs:
        model.get_submodule(name).register_forward_hook(note(name))
    outputs = _outputs(model, task, batch)
    return outputs, [pair for pair in pairs if batched.get(pair[0], False)]


def _outputs(model: nn.Module, task: Task, batch: Any) -> list[Tensor]:
    """All tensors that the model returns while the task predicts, and what the task makes of them."""
    seen: list[Tensor] = []
    hook = model.register_forward_hook(lambda module, inputs, output: seen.extend(_tensors_in(output)))
    try:
        told = task.predict(model, batch)
    finally:
        hook.remove()
    # Rounding may turn the prediction of a near tie, not what it was predicted from.
    return [*seen, told.confidence] if seen else []


def _agrees(model: nn.Module, task: Task, batch: Any, expected: Sequence[Tensor]) -> bool:
    try:
        found = _outputs(model, task, batch)
    except RuntimeError:  # .view() of what lies channels last
        return False
    if not expected or len(found) != len(expected):
        return False
    return all(_close(a, b) for a, b in zip(found, expected, strict=True))


def _close(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if not expected.is_floating_point() or expected.numel() == 0:
        return bool(torch.equal(found, expected))
    return float((found - expected).abs().max()) <= _TOLERANCE * float(expected.abs().max())


def _tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors_in(part)
