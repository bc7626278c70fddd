"""Weights that are spread over processes (FSDP2's ``fully_shard``): local shards, and sums over all of them.

A gradient of such a weight is a DTensor of which each process holds a piece. Inner products are sums over the pieces:
three scalars are exchanged, and the combination a·f + b·r is local.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gradpivot.errors import GradPivotError
from gradpivot.geometry.gramian import Gram, gram_of
from gradpivot.runtime import Gradient

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

__all__ = ["anywhere", "gram_over_shards", "is_sharded", "local", "refuse_partly_sharded", "shaped_like_shard"]


def is_sharded(tensor: Any) -> bool:
    """Whether it is a DTensor."""
    # If nobody has imported the module there is none, and importing it takes a third of a second.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def refuse_partly_sharded(parameters: Sequence[Tensor]) -> bool:
    """Whether the parameters are sharded.

    Raises:
        GradPivotError: if some are and some are not: the gradients of the latter would be one process's only.
    """
    # This runs in every backward pass, where most parameters are of this very type.
    sharded = sum([type(parameter) is not torch.nn.Parameter and is_sharded(parameter) for parameter in parameters])
    if 0 < sharded < len(parameters):
        raise GradPivotError(
            f"{sharded} of {len(parameters)} parameters are sharded; call fully_shard(model) on the whole model too, "
            f"and list model.parameters() before the forward pass, which gathers some"
        )
    return sharded > 0


def refusing_gathered(parameters: Sequence[Tensor]) -> AbstractContextManager[None]:
    """Notice in a backward pass that these are not the shards but the copies that a forward pass has gathered.

    Between a forward pass and its backward pass ``model.parameters()`` gives such copies. They look like any other
    tensor, but their gradients are taken away to the shards as soon as they are there.

    Raises:
        GradPivotError: after the block, if that happened.
    """
    grouped = torch.distributed.is_available() and torch.distributed.is_initialized()
    return _hooked(parameters) if grouped and not is_sharded(parameters[0]) else nullcontext()


@contextmanager
def _hooked(parameters: Sequence[Tensor]) -> Iterator[None]:
    reached: list[Tensor] = []
    hooks = [p.register_post_accumulate_grad_hook(reached.append) for p in parameters]  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if any(parameter.grad is None for parameter in reached):
        raise GradPivotError(
            "these parameters were gathered for a forward pass by fully_shard; list model.parameters() before it, or "
            "pass the losses as functions"
        )


def local(tensors: Sequence[Tensor | None]) -> Gradient:
    """The pieces that this process holds; tensors that are not sharded as they are.

    Raises:
        GradPivotError: for a gradient that is not summed over the processes yet.
    """
    return [None if tensor is None else _piece(tensor) for tensor in tensors]


def gram_over_shards(parameters: Sequence[Tensor], forget: Gradient, retain: Gradient) -> Gram:
    """The Gram matrix of two gradients whose local pieces are given.

    Pieces along a sharded dimension of the mesh add up; along a replicated one (HSDP) they are copies and count once.
    """
    if not is_sharded(parameters[0]):
        return gram_of(forget, retain)
    layouts: dict[Any, list[int]] = {}
    for position, parameter in enumerate(parameters):
        layouts.setdefault(_layout(parameter), []).append(position)
    sums = [0.0, 0.0, 0.0]
    for layout, positions in layouts.items():
        mine = gram_of([forget[i] for i in positions], [retain[i] for i in positions])
        sums = [total + more for total, more in zip(sums, _summed(list(mine), *layout), strict=True)]
    return Gram(*sums)


def anywhere(parameters: Sequence[Tensor], here: bool) -> bool:
    """Whether something holds of any process's pieces."""
    if not is_sharded(parameters[0]):
        return here
    # All sums before the first answer: a process that stopped asking would leave the others waiting.
    sums = [_summed([float(here)], *layout)[0] for layout in dict.fromkeys(map(_layout, parameters))]
    return sum(sums) > 0


def shaped_like_shard(piece: Tensor, parameter: Tensor) -> Tensor:
    """The local piece of a gradient as what ``parameter.grad`` must be."""
    if not is_sharded(parameter):
        return piece
    from torch.distributed.tensor import DTensor

    whole = _as_dtensor(parameter)
    made: Tensor = DTensor.from_local(
        piece, whole.device_mesh, whole.placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )
    return made


def _piece(tensor: Tensor) -> Tensor:
    if not is_sharded(tensor):
        return tensor
    sharded = _as_dtensor(tensor)
    if any(placement.is_partial() for placement in sharded.placements):
        raise GradPivotError(
            f"a sharded gradient is not reduced yet (placements {sharded.placements}); only Shard and Replicate "
            f"gradients, as fully_shard produces them, can be pivoted"
        )
    piece: Tensor = sharded.to_local()
    # An asynchronous collective's result is a tensor that waits when it is used; in-place writes need the real one.
    waited: Tensor = piece.wait() if hasattr(piece, "wait") else piece
    return waited


def _layout(parameter: Tensor) -> tuple[Any, tuple[bool, ...]]:
    sharded = _as_dtensor(parameter)
    return sharded.device_mesh, tuple(placement.is_replicate() for placement in sharded.placements)


def _summed(numbers: list[float], mesh: Any, replicated: tuple[bool, ...]) -> list[float]:
    """The sums over all pieces, equal in all processes.

    Along a replicated dimension the copies are averaged rather than left alone: were two of them to differ in the last
    digit, the replicas would drift apart.
    """
    import torch.distributed as dist

    total = torch.tensor(numbers, dtype=torch.float64, device=mesh.device_type)
    for dimension in range(mesh.ndim):
        dist.all_reduce(total, group=mesh.get_group(dimension))
    copies = math.prod(size for size, copied in zip(mesh.shape, replicated, strict=True) if copied)
    return [number / copies for number in total.tolist()]


def _as_dtensor(tensor: Tensor) -> DTensor:
    return tensor  # type: ignore[return-value]
