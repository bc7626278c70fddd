"""Several processes with a replica of the model each: who takes which samples, and one all-reduce a step.

Every process knows the same order of global batches (:mod:`gradpivot.data.order`), takes its part of each, and adds
its share of both gradients and both losses to one flat vector that is summed over the processes. Gram matrix, weights
and step are then computed by each from the same numbers, so the replicas stay equal bit by bit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from gradpivot.errors import GradPivotError

__all__ = ["Gradient", "LostProcessError", "Part", "Replicas", "Side"]

T = TypeVar("T")
Gradient = list[Tensor | None]
"""One tensor per parameter, None where a loss does not reach it."""
Side = Callable[[], tuple[Gradient, float | None]]
"""Computes this process's share of one gradient and of its loss."""

_SAME = 1e-7
"""How far the sums of two replicas may differ on unlike devices, relative to the sum of magnitudes."""


class LostProcessError(GradPivotError):
    """Another process of the run has ended, so that nothing more can be exchanged with it."""


class Part(NamedTuple):
    """Which samples of a batch are this process's: ``start`` to ``stop`` of ``total``."""

    start: int
    stop: int
    total: int

    @property
    def share(self) -> float:
        """The fraction of the batch; the shares of all processes sum to 1."""
        return (self.stop - self.start) / self.total


@dataclass(frozen=True)
class Replicas:
    """The processes that run one method together; ``Replicas()`` is one process that runs it alone.

    Attributes:
        rank: This process's number, from 0.
        size: How many there are.
        group: Their process group; None for the default one.
    """

    rank: int = 0
    size: int = 1
    group: Any = None

    @classmethod
    def current(cls, group: Any = None) -> Replicas:
        """All processes of the default process group (or of ``group``); one, if there is no group."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.get_rank(group), dist.get_world_size(group), group)

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.rank == 0

    def part(self, total: int) -> Part:
        """This process's consecutive part of ``total`` samples; sizes differ by one at most, and may be zero."""
        return Part(self.rank * total // self.size, (self.rank + 1) * total // self.size, total)

    def take(self, indices: np.ndarray) -> np.ndarray:
        """This process's part of a batch. Where that is empty: the first sample, whose share is then zero.

        So no method ever sees a batch without samples.
        """
        start, stop, _ = self.part(len(indices))
        return indices[start:stop] if stop > start else indices[:1]

    def mean_gradients(
        self, parameters: Sequence[Tensor], sides: Sequence[Side | None], averaged: Sequence[Tensor] = ()
    ) -> list[tuple[Gradient, float | None]]:
        """The sum over processes of each side's gradient and loss, in one all-reduce.

        Args:
            parameters: What the gradients belong to.
            sides: Compute this process's share of a gradient and its loss, weighted so that the sum is the mean; a side
                that is None is not asked for. Called one after the other, so that one gradient besides the sums is
                held at a time.
            averaged: Floating-point buffers that become their mean over the processes on the way.

        Returns:
            Per side the gradient (None where no process's loss reaches the parameter) and the loss. The sums are taken
            in float32, or in float64 if a parameter has that; gradients come back in their parameter's dtype and
            memory layout.
        """
        if self.size == 1:
            return [([None] * len(parameters), None) if side is None else side() for side in sides]
        # They are views of the last step's sums, which would otherwise live on beside the new ones.
        for parameter in parameters:
            parameter.grad = None
        sums = _Sums(parameters, [side is not None for side in sides], averaged)
        for number, side in enumerate(sides):
            if side is not None:
                sums.put(number, *side())
        sums.put_averaged(averaged, 1 / self.size)
        self._exchange(lambda: dist.all_reduce(sums.flat, group=self.group))
        sums.take_averaged(averaged)
        return [sums.take(number) for number in range(len(sides))]

    def mean(self, columns: dict[str, float | None], share: float) -> dict[str, float | None]:
        """The mean of some numbers over the processes, each weighted by its share; None where one has none."""
        if self.size == 1:
            return columns
        told = [(s, theirs) for s, theirs in self.gather((share, columns)) if s]
        return {name: _weighted([(s, theirs[name]) for s, theirs in told]) for name in columns}

    def anywhere(self, here: bool, device: str = "cpu") -> bool:
        """Whether something holds in any process; the answer is the same in all."""
        if self.size == 1:
            return here
        flag = torch.tensor(float(here), device=device)
        self._exchange(lambda: dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self.group))
        return bool(flag)

    def gather(self, mine: T) -> list[T]:
        """What each process gave, in their order."""
        if self.size == 1:
            return [mine]
        found: list[Any] = [None] * self.size
        self._exchange(lambda: dist.all_gather_object(found, mine, group=self.group))
        return found

    def from_first(self, make: Callable[[], T]) -> T:
        """What ``make`` gives in the first process; its GradPivotError is raised in all of them."""
        if self.size == 1:
            return make()
        told: list[Any] = [None, None]
        error: GradPivotError | None = None
        if self.is_first:
            try:
                told[0] = make()
            except GradPivotError as refused:
                error, told[1] = refused, str(refused)
        source = 0 if self.group is None else dist.get_global_rank(self.group, 0)
        self._exchange(lambda: dist.broadcast_object_list(told, src=source, group=self.group))
        if told[1] is not None:
            raise error or GradPivotError(told[1])
        made: T = told[0]
        return made

    def agree(self, what: str, value: Any) -> None:
        """Make sure that all processes have the same value.

        Raises:
            GradPivotError: in all of them, if they do not.
        """
        told = self.gather(value)
        if any(other != told[0] for other in told):
            raise GradPivotError(
                f"the {self.size} processes have different {what} ({', '.join(map(str, told))}); start all of them "
                f"with the same arguments, or pass replicas=Replicas() to run each by itself"
            )

    def same_weights(self, model: nn.Module) -> None:
        """Make sure that the replicas have not drifted apart: not by a bit on devices of one kind.

        Unlike devices round unlike; there the sums of every weight must agree.

        Raises:
            GradPivotError: in all processes, naming the first weight or buffer that differs.
        """
        if self.size == 1:
            return
        tensors = model.state_dict()
        kinds = self.gather(sorted({_kind_of(tensor.device) for tensor in tensors.values()}))
        tell = _bits_of if all(kind == kinds[0] for kind in kinds) else _sums_of
        told = self.gather({name: tell(tensor) for name, tensor in tensors.items()})
        for name, first in told[0].items():
            if not all(_alike(first, theirs[name]) for theirs in told):
                raise GradPivotError(
                    f"the replicas of {name} differ between the {self.size} processes; the method or the model decides "
                    f"something by its own part of the batch or by random numbers of its own. Run it in one process"
                )

    def _exchange(self, collective: Callable[[], Any]) -> None:
        try:
            collective()
        except RuntimeError as error:
            # Gloo and NCCL say in many ways that the other end is gone; anything else of theirs is as fatal.
            raise LostProcessError(
                f"process {self.rank} of {self.size} lost the others ({str(error).splitlines()[0][:120]}); what was "
                f"done is in the checkpoint, start the same command again to continue"
            ) from error


def _weighted(values: Sequence[tuple[float, float | None]]) -> float | None:
    if any(value is None for _, value in values):
        return None
    if len({value for _, value in values}) == 1:
        # To the last digit: a resumed run goes on from what it finds.
        return values[0][1]
    total = math.fsum(share for share, _ in values)
    return math.fsum(share * value for share, value in values if value is not None) / total


class _Sums:
    """One vector with everything that is summed: gradients, whether each was there, losses, averaged buffers."""

    def __init__(self, parameters: Sequence[Tensor], wanted: Sequence[bool], averaged: Sequence[Tensor]) -> None:
        self._parameters, self._wanted = parameters, wanted
        self._starts = [0, *accumulate(p.numel() for p in parameters)]
        self._count = self._starts[-1]
        # Per side: the gradient, one flag a parameter, the loss.
        self._side = self._count + len(parameters) + 1
        self._offsets = [0, *accumulate(self._side if w else 0 for w in wanted)]
        size = self._offsets[-1] + sum(b.numel() for b in averaged)
        dtype = torch.float32
        for tensor in parameters:
            dtype = torch.promote_types(dtype, tensor.dtype)
        self.flat = torch.zeros(size, dtype=dtype, device=parameters[0].device)

    def put(self, side: int, gradient: Gradient, loss: float | None) -> None:
        """Write one side's share."""
        offset = self._offsets[side]
        reached = [float(g is not None) for g in gradient]
        self.flat[offset + self._count : offset + self._side] = self.flat.new_tensor([*reached, loss or 0.0])
        for view, part in zip(self._views(offset), gradient, strict=True):
            if part is not None:
                view.copy_(part)

    def take(self, side: int) -> tuple[Gradient, float | None]:
        """One side's sums; views of the vector where the dtype allows it."""
        if not self._wanted[side]:
            return [None] * len(self._parameters), None
        offset = self._offsets[side]
        *reached, loss = self.flat[offset + self._count : offset + self._side].tolist()
        gradient: Gradient = [
            view.to(p.dtype) if there else None
            for view, p, there in zip(self._views(offset), self._parameters, reached, strict=True)
        ]
        return gradient, loss

    def put_averaged(self, buffers: Sequence[Tensor], share: float) -> None:
        """Write the buffers' shares."""
        for view, buffer in self._averaged(buffers):
            view.copy_(buffer.detach().reshape(-1)).mul_(share)

    @torch.no_grad()
    def take_averaged(self, buffers: Sequence[Tensor]) -> None:
        """Give the buffers their means."""
        for view, buffer in self._averaged(buffers):
            buffer.copy_(view.view_as(buffer))

    def _averaged(self, buffers: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        start = self._offsets[-1]
        for buffer in buffers:
            yield self.flat[start : start + buffer.numel()], buffer
            start += buffer.numel()

    def _views(self, offset: int) -> Iterator[Tensor]:
        """The gradients' places, laid out as the parameters are: an optimiser is fastest where they match."""
        for start, parameter in zip(self._starts, self._parameters, strict=False):
            place = self.flat[offset + start : offset + start + parameter.numel()]
            yield (
                place.as_strided(parameter.shape, parameter.stride())
                if _is_dense(parameter)
                else place.view(parameter.shape)
            )


def _kind_of(device: torch.device) -> str:
    """What decides how a device rounds."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{device.type} {torch.backends.cpu.get_cpu_capability()}"


def _bits_of(tensor: Tensor) -> str:
    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(content.tobytes()).hexdigest()


def _sums_of(tensor: Tensor) -> tuple[float, float]:
    exact = tensor.detach().double()
    return float(exact.sum()), float(exact.abs().sum())


def _alike(one: Any, other: Any) -> bool:
    """Whether two tensors told by :func:`_bits_of` or :func:`_sums_of` are the same, as far as that tells."""
    if isinstance(one, str):
        return bool(one == other)
    if math.isnan(one[0]) and math.isnan(other[0]):
        return True
    return bool(one[0] == other[0] or abs(one[0] - other[0]) <= _SAME * max(one[1], other[1]))


def _is_dense(tensor: Tensor) -> bool:
    """Whether its strides number its elements without gaps, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return tensor.numel() > 0
