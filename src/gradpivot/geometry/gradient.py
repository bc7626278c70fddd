"""The gradient of one loss with respect to some parameters, and masks on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from gradpivot.errors import GradPivotError
from gradpivot.geometry.sharding import anywhere, is_sharded, local, refuse_partly_sharded, refusing_gathered
from gradpivot.runtime import Gradient

__all__ = ["Loss", "apply_mask", "gradient_of", "plain_gradient", "trainable_masks"]

Loss = Tensor | Callable[[], Tensor]

_NOTHING = nullcontext()


def gradient_of(loss: Loss, parameters: Sequence[Tensor]) -> Gradient:
    """:func:`plain_gradient` of a loss or a function that computes it, for parameters that may be sharded.

    Raises:
        GradPivotError: also if the parameters are sharded in part or gathered.
    """
    return plain_gradient(loss() if callable(loss) else loss, parameters, foreign=True)


def plain_gradient(loss: Tensor, parameters: Sequence[Tensor], *, foreign: bool = False) -> Gradient:
    """∂loss/∂parameters, None where the loss does not depend on a parameter; frees the loss's graph.

    Args:
        loss: A scalar.
        parameters: Tensors that require gradients. If they are sharded, all that the loss reaches.
        foreign: Whether they may be sharded, or gathered from shards; not so in a copy of a model.

    Raises:
        GradPivotError: if the loss is not a scalar, depends on no parameter, or its graph is already freed, or if a
            parameter has a hook.
    """
    _refuse_hooks(parameters)
    if not isinstance(loss, Tensor):
        raise GradPivotError(f"a loss is a {type(loss).__name__}; pass the tensor, without .item()")
    if loss.numel() != 1:
        raise GradPivotError(f"a loss has shape {tuple(loss.shape)}; reduce it to a scalar, for example with mean()")
    if not loss.requires_grad:
        raise GradPivotError(
            "a loss does not depend on any parameter; was it computed under torch.no_grad() or detached?"
        )
    gradients = _accumulated_gradient(loss, parameters, foreign)
    reached = False
    for gradient in gradients:
        if gradient is not None:
            reached = True
            if gradient.is_sparse:
                raise GradPivotError("sparse gradients cannot be pivoted; build the embedding with sparse=False")
    if not reached:
        raise GradPivotError("a loss depends on none of the parameters; was it computed with another model?")
    return gradients


def _refuse_hooks(parameters: Sequence[Tensor]) -> None:
    """Refuse parameters with hooks of the user's.

    A hook that clips or steps would do so with each of the two gradients, and the pivot of what is left may conflict
    with both losses. Module hooks are part of the graph. DDP's and FSDP's own hooks are not on the parameters but on
    nodes of the graph, where nobody can list them; a parameter that such a hook changes is noticed afterwards.
    """
    for position, parameter in enumerate(parameters):
        # The last one is set by torch.distributed.optim, which hooks the graph instead of the parameter.
        if (
            parameter._backward_hooks
            or parameter._post_accumulate_grad_hooks
            or parameter.__dict__.get("_in_backward_optimizers")
        ):
            raise GradPivotError(
                f"parameter {position} of shape {tuple(parameter.shape)} has a hook or an optimizer that acts in the "
                f"backward pass, on each of the two gradients; remove it (handle.remove()), and clip or step after "
                f"Pivot.backward()"
            )


def _accumulated_gradient(loss: Tensor, parameters: Sequence[Tensor], foreign: bool) -> Gradient:
    """The gradient by way of ``.grad``, which is then as it was.

    What :func:`torch.autograd.grad` returns may be an expanded tensor or one that several parameters share, and
    writing into it would corrupt the others; what lands in ``.grad`` is always the parameter's own memory.
    """
    # The weights in a sharded model's graph are gathered copies: naming the shards as inputs would find nothing.
    inputs = None if foreign and refuse_partly_sharded(parameters) else tuple(parameters)
    existing = [p.grad for p in parameters]
    versions = [p._version for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        with refusing_gathered(parameters) if foreign else _NOTHING:
            _run_backward(loss, inputs)
        if inputs is not None and versions != [p._version for p in parameters]:
            raise GradPivotError(
                "a parameter changed during the backward pass, so that the two gradients are not of the same weights; "
                "remove the hook or optimizer that acts there, load the weights again, and step after Pivot.backward()"
            )
        return [p.grad for p in parameters]
    except RuntimeError as error:
        if "second time" not in str(error):
            raise
        raise GradPivotError(
            "the two losses share one graph; compute each from its own forward pass "
            "(model(forget_x) and model(retain_x)), or pass functions that do"
        ) from None
    finally:
        for parameter, gradient in zip(parameters, existing, strict=True):
            parameter.grad = gradient


def _run_backward(loss: Tensor, inputs: tuple[Tensor, ...] | None) -> None:
    if inputs is None or type(loss) is not Tensor or not loss.is_floating_point():
        loss.backward(inputs=inputs)  # type: ignore[no-untyped-call]
        return
    # What backward() comes down to for a plain number. Its own checks take 30 µs, 3 % of a small network's step.
    torch.autograd.Variable._execution_engine.run_backward(
        (loss,), (torch.ones_like(loss),), False, False, inputs, allow_unreachable=True, accumulate_grad=True
    )


def trainable_masks(mask: Sequence[Tensor | None], parameters: Sequence[Tensor]) -> list[Tensor | None]:
    """The masks of those parameters that require gradients.

    Raises:
        GradPivotError: unless there is one mask of zeros and ones of the same shape, or None, for each parameter.
    """
    masks = list(mask) if isinstance(mask, Sequence) else [mask]
    if not all(m is None or isinstance(m, Tensor) for m in masks) or not isinstance(mask, Sequence):
        raise GradPivotError(f"the mask is a {type(mask).__name__}; pass a list with a tensor or None per parameter")
    if len(masks) != len(parameters):
        raise GradPivotError(f"there are {len(masks)} masks for {len(parameters)} parameters; pass one per parameter")
    for m, p in zip(masks, parameters, strict=True):
        if m is not None and m.shape != p.shape:
            raise GradPivotError(
                f"a mask has shape {tuple(m.shape)}, but its parameter has {tuple(p.shape)}; they must be equal"
            )
        if m is not None and m.device != p.device:
            raise GradPivotError(f"a mask is on {m.device}, but its parameter is on {p.device}; move it with mask.to()")
        if m is not None and is_sharded(m) != is_sharded(p):
            raise GradPivotError(
                "a mask must be sharded like its parameter: distribute_tensor(mask, p.device_mesh, p.placements)"
            )
    numeric = [m for m in local(masks) if m is not None and m.dtype != torch.bool]
    if parameters and anywhere(parameters, any(bool(((m != 0) & (m != 1)).any()) for m in numeric)):
        raise GradPivotError("a mask has other numbers than 0 and 1; a mask only selects weights, such as mask > 0.5")
    return [m for m, p in zip(masks, parameters, strict=True) if p.requires_grad]


def apply_mask(gradients: Gradient, masks: Sequence[Tensor | None]) -> None:
    """Zero the gradients where their mask is zero; a NaN stays one, so that it is still seen."""
    for gradient, mask in zip(gradients, masks, strict=True):
        if gradient is not None and mask is not None:
            gradient.mul_(mask.to(gradient.dtype))
