"""Data parallelism: each process holds a replica of the model, with one all-reduce per step.

All processes use the same order of global batches (:mod:`gradpivot.data.order`). Each computes its part of a batch and
writes its share of both gradients and losses to one flat vector, which is summed over the processes. Each then computes
Gram matrix, weights and step from the same numbers, so the replicas stay bitwise equal.
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
"""One tensor per parameter, None where the loss does not depend on it."""
Side = Callable[[], tuple[Gradient, float | None]]
"""Computes this process's share of one gradient and its loss."""

_SUM_TOLERANCE = 1e-7
"""Tolerance between the weight sums of replicas on different device types, relative to the sum of magnitudes."""


class LostProcessError(GradPivotError):
    """Another process of the run has ended or cannot be reached."""


class Part(NamedTuple):
    """This process's samples of a batch: ``start`` to ``stop`` of ``total``."""

    start: int
    stop: int
    total: int

    @property
    def share(self) -> float:
        """Fraction of the batch; the shares of all processes sum to 1."""
        return (self.stop - self.start) / self.total


@dataclass(frozen=True)
class Replicas:
    """The processes of one run; ``Replicas()`` is a single process.

    Attributes:
        rank: Rank of this process.
        size: Number of processes.
        group: Process group; None for the default group.
    """

    rank: int = 0
    size: int = 1
    group: Any = None

    @classmethod
    def current(cls, group: Any = None) -> Replicas:
        """The processes of ``group``, by default the default process group; a single process if there is none."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.get_rank(group), dist.get_world_size(group), group)

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes files and prints."""
        return self.rank == 0

    def part(self, total: int) -> Part:
        """This process's contiguous part of ``total`` samples; sizes differ by at most one and may be zero."""
        return Part(self.rank * total // self.size, (self.rank + 1) * total // self.size, total)

    def take(self, indices: np.ndarray) -> np.ndarray:
        """This process's part of a batch; if empty, the first sample with share zero: no method sees an empty batch."""
        start, stop, _ = self.part(len(indices))
        return indices[start:stop] if stop > start else indices[:1]

    def mean_gradients(
        self, parameters: Sequence[Tensor], sides: Sequence[Side | None], averaged: Sequence[Tensor] = ()
    ) -> list[tuple[Gradient, float | None]]:
        """Sum each side's gradient and loss over the processes in one all-reduce.

        Args:
            parameters: Parameters of the gradients.
            sides: Each computes this process's share of a gradient and its loss, weighted so that the sum is the mean;
                None skips that side. Called one at a time, so that only one gradient is in memory besides the sums.
            averaged: Floating-point buffers to replace by their mean over the processes in the same all-reduce.

        Returns:
            Gradient (None where no process's loss depends on the parameter) and loss of each side. Sums are computed in
            float32, or float64 if a parameter is float64; gradients have the dtype and memory layout of their
            parameter.
        """
        if self.size == 1:
            return [([None] * len(parameters), None) if side is None else side() for side in sides]
        # The gradients are views of the last step's sums; release that memory first.
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
        """Share-weighted mean of each column over the processes; None if it is None in any process."""
        if self.size == 1:
            return columns
        gathered = [(s, theirs) for s, theirs in self.gather((share, columns)) if s]
        return {name: _weighted([(s, theirs[name]) for s, theirs in gathered]) for name in columns}

    def any_process(self, local: bool, device: str = "cpu") -> bool:
        """Whether ``local`` is true in any process."""
        if self.size == 1:
            return local
        flag = torch.tensor(float(local), device=device)
        self._exchange(lambda: dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self.group))
        return bool(flag)

    def gather(self, local: T) -> list[T]:
        """The values of all processes, by rank."""
        if self.size == 1:
            return [local]
        gathered: list[Any] = [None] * self.size
        self._exchange(lambda: dist.all_gather_object(gathered, local, group=self.group))
        return gathered

    def from_first(self, make: Callable[[], T]) -> T:
        """Call ``make`` on rank 0 and broadcast the result; a GradPivotError is raised in all processes."""
        if self.size == 1:
            return make()
        message: list[Any] = [None, None]
        error: GradPivotError | None = None
        if self.is_first:
            try:
                message[0] = make()
            except GradPivotError as raised:
                error, message[1] = raised, str(raised)
        source = 0 if self.group is None else dist.get_global_rank(self.group, 0)
        self._exchange(lambda: dist.broadcast_object_list(message, src=source, group=self.group))
        if message[1] is not None:
            raise error or GradPivotError(message[1])
        made: T = message[0]
        return made

    def check_equal(self, what: str, value: Any) -> None:
        """Check that all processes have the same value.

        Raises:
            GradPivotError: in all processes, if the values differ.
        """
        values = self.gather(value)
        if any(other != values[0] for other in values):
            raise GradPivotError(
                f"the {self.size} processes have different {what} ({', '.join(map(str, values))}); start all of them "
                f"with the same arguments, or pass replicas=Replicas() to run each on its own"
            )

    def check_weights(self, model: nn.Module) -> None:
        """Check that the replicas have not drifted apart.

        Devices of one type must agree bitwise. Different types round differently; there only the sums of each weight
        must agree.

        Raises:
            GradPivotError: in all processes, naming the first weight or buffer that differs.
        """
        if self.size == 1:
            return
        tensors = model.state_dict()
        devices = self.gather(sorted({_device_type(tensor.device) for tensor in tensors.values()}))
        fingerprint = _hash if all(device == devices[0] for device in devices) else _sums
        fingerprints = self.gather({name: fingerprint(tensor) for name, tensor in tensors.items()})
        for name, first in fingerprints[0].items():
            if not all(_matches(first, theirs[name]) for theirs in fingerprints):
                raise GradPivotError(
                    f"the replicas of {name} differ between the {self.size} processes: the method or model depends on "
                    f"its part of the batch or on its own random numbers; run it in one process"
                )

    def _exchange(self, collective: Callable[[], Any]) -> None:
        try:
            collective()
        except RuntimeError as error:
            # Gloo and NCCL have many messages for a lost peer; their other errors are just as fatal.
            raise LostProcessError(
                f"process {self.rank} of {self.size} lost contact with the others "
                f"({str(error).splitlines()[0][:120]}); run the same command again to resume from the checkpoint"
            ) from error


def _weighted(values: Sequence[tuple[float, float | None]]) -> float | None:
    if any(value is None for _, value in values):
        return None
    if len({value for _, value in values}) == 1:
        # Exact: a resumed run continues from this value.
        return values[0][1]
    total = math.fsum(share for share, _ in values)
    return math.fsum(share * value for share, value in values if value is not None) / total


class _Sums:
    """One flat vector of everything to sum: gradients, flags for the defined ones, losses, averaged buffers."""

    def __init__(self, parameters: Sequence[Tensor], wanted: Sequence[bool], averaged: Sequence[Tensor]) -> None:
        self._parameters, self._wanted = parameters, wanted
        self._starts = [0, *accumulate(p.numel() for p in parameters)]
        self._count = self._starts[-1]
        # Per side: the gradient, one flag per parameter, the loss.
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
        defined = [float(g is not None) for g in gradient]
        self.flat[offset + self._count : offset + self._side] = self.flat.new_tensor([*defined, loss or 0.0])
        for view, part in zip(self._views(offset), gradient, strict=True):
            if part is not None:
                view.copy_(part)

    def take(self, side: int) -> tuple[Gradient, float | None]:
        """Read one side's sums, as views of the vector where the dtype allows."""
        if not self._wanted[side]:
            return [None] * len(self._parameters), None
        offset = self._offsets[side]
        *defined, loss = self.flat[offset + self._count : offset + self._side].tolist()
        gradient: Gradient = [
            view.to(p.dtype) if is_defined else None
            for view, p, is_defined in zip(self._views(offset), self._parameters, defined, strict=True)
        ]
        return gradient, loss

    def put_averaged(self, buffers: Sequence[Tensor], share: float) -> None:
        """Write the buffers' shares."""
        for view, buffer in self._averaged(buffers):
            view.copy_(buffer.detach().reshape(-1)).mul_(share)

    @torch.no_grad()
    def take_averaged(self, buffers: Sequence[Tensor]) -> None:
        """Set the buffers to their means."""
        for view, buffer in self._averaged(buffers):
            buffer.copy_(view.view_as(buffer))

    def _averaged(self, buffers: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        start = self._offsets[-1]
        for buffer in buffers:
            yield self.flat[start : start + buffer.numel()], buffer
            start += buffer.numel()

    def _views(self, offset: int) -> Iterator[Tensor]:
        """Views of the gradients in the memory layout of their parameters: optimisers are fastest when they match."""
        for start, parameter in zip(self._starts, self._parameters, strict=False):
            chunk = self.flat[offset + start : offset + start + parameter.numel()]
            yield (
                chunk.as_strided(parameter.shape, parameter.stride())
                if _is_dense(parameter)
                else chunk.view(parameter.shape)
            )


def _device_type(device: torch.device) -> str:
    """Identifies devices that round in the same way."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{device.type} {torch.backends.cpu.get_cpu_capability()}"


def _hash(tensor: Tensor) -> str:
    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(content.tobytes()).hexdigest()


def _sums(tensor: Tensor) -> tuple[float, float]:
    exact = tensor.detach().double()
    return float(exact.sum()), float(exact.abs().sum())


def _matches(one: Any, other: Any) -> bool:
    """Whether two fingerprints by :func:`_hash` or :func:`_sums` match."""
    if isinstance(one, str):
        return bool(one == other)
    if math.isnan(one[0]) and math.isnan(other[0]):
        return True
    return bool(one[0] == other[0] or abs(one[0] - other[0]) <= _SUM_TOLERANCE * max(one[1], other[1]))


def _is_dense(tensor: Tensor) -> bool:
    """Whether the tensor occupies its memory without gaps, in any order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return tensor.numel() > 0
