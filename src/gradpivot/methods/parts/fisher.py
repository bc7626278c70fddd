"""The damped empirical Fisher matrix and its inverse times a vector.

H = δ·I + (1/m) Σ gᵢgᵢᵀ with gᵢ the gradient of one sample's cross-entropy. With G the m×p matrix whose rows they are,
H = δ·I + GᵀG/m. Vectors are flat and in float64; G has the dtype of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vjp, vmap
from torch.nn.functional import cross_entropy

from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from gradpivot.tasks import Classification

__all__ = [
    "SampleGradients",
    "diagonal_fisher",
    "flat",
    "shaped_like",
    "solve_cg",
    "solve_woodbury",
    "subtract_shortcut",
]

_BLOCK = 1 << 17
"""How many numbers of G are turned into float64 at a time: 1 MB, which stays in the cache."""

_EXACT, _ROUNDS = 1e-10, 10
"""What may be left of the right side of a system that is solved exactly, and how many rounds that may take."""

Parameters = dict[str, Tensor]


class SampleGradients:
    """The gradients of single samples' cross-entropy, as a matrix G (m×p) that need not be held in memory.

    Args:
        model: In eval mode; only its trainable parameters count.
        task: How to run it.
        batches: The m samples, all in memory.
    """

    def __init__(self, model: nn.Module, task: Classification, batches: Sequence[Any]) -> None:
        self._model, self._task = model, task
        self._parameters = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
        self._batches = [_on_device(task.adapter(batch), model) for batch in batches]

    @property
    def shape(self) -> tuple[int, int]:
        """(m, p): samples and trainable weights."""
        return (sum(len(targets) for _, targets in self._batches), sum(p.numel() for p in self._parameters.values()))

    @property
    def bytes(self) -> int:
        """What G takes in memory."""
        m, _ = self.shape
        return m * sum(p.numel() * p.element_size() for p in self._parameters.values())

    def times(self, vector: Tensor) -> Tensor:
        """G·u by forward-mode differentiation: the change of each sample's loss along u."""
        along = self._shaped(vector)
        return torch.cat([jvp(losses, (self._parameters,), (along,))[1] for losses in self._losses()]).double()

    def transposed_times(self, weights: Tensor) -> Tensor:
        """Gᵀ·w by backward passes: the gradient of the samples' losses weighted by w."""
        total = torch.zeros(self.shape[1], dtype=torch.float64, device=weights.device)
        rest = weights
        for losses in self._losses():
            values, pull = vjp(losses, self._parameters)[:2]
            total += flat(pull(rest[: len(values)].to(values.dtype))[0].values())
            rest = rest[len(values) :]
        return total

    def dense(self) -> Tensor:
        """G itself, by vmap where the model allows it and sample by sample where it does not."""
        some = next(iter(self._parameters.values()))
        matrix = some.new_empty(self.shape)
        start = 0
        for inputs, targets in self._batches:
            stop = start + len(targets)
            try:
                rows = vmap(grad(self._loss_of_one), in_dims=(None, 0, 0))(self._parameters, inputs, targets)
                _write(matrix[start:stop], rows)
            except (RuntimeError, ValueError):
                # A model with control flow that depends on its data, for one; the numbers are the same.
                for i in range(len(targets)):
                    one = _each(inputs, itemgetter(i))
                    row = grad(self._loss_of_one)(self._parameters, one, targets[i])
                    _write(matrix[start + i : start + i + 1], {n: g[None] for n, g in row.items()})
            start = stop
        return matrix

    def _losses(self) -> Iterator[Callable[[Parameters], Tensor]]:
        """For each batch its samples' losses as a function of the weights."""
        for inputs, targets in self._batches:
            yield partial(self._losses_of, inputs=inputs, targets=targets)

    def _losses_of(self, parameters: Parameters, inputs: Any, targets: Tensor) -> Tensor:
        return cross_entropy(self._logits(parameters, inputs), targets, reduction="none")

    def _loss_of_one(self, parameters: Parameters, inputs: Any, target: Tensor) -> Tensor:
        return cross_entropy(self._logits(parameters, _each(inputs, itemgetter(None))), target[None])

    def _logits(self, parameters: Parameters, inputs: Any) -> Tensor:
        def run(*positional: Any, **named: Any) -> Any:
            return functional_call(self._model, parameters, positional, named)

        return self._task.outputs(run, inputs)

    def _shaped(self, vector: Tensor) -> Parameters:
        return dict(zip(self._parameters, shaped_like(self._parameters.values(), vector), strict=True))


def solve_woodbury(matrix: Tensor, vector: Tensor, damping: float) -> Tensor:
    """(δ·I + GᵀG/m)⁻¹v = (v − Gᵀ(mδ·I + GGᵀ)⁻¹Gv)/δ: exact for these samples, through an m×m system.

    GGᵀ is computed in the dtype of the weights, which is most of the work, and the difference cancels where v lies in
    the span of the samples. Rounds on the residual, in float64, make up for both.

    Raises:
        GradPivotError: if the damping is lost in rounding.
    """
    m = len(matrix)
    gram = (matrix @ matrix.T).double()
    gram.diagonal().add_(m * damping)
    factor, failed = torch.linalg.cholesky_ex(gram)
    solution, residual = torch.zeros_like(vector), vector
    goal = _EXACT * float(vector.norm())
    for _ in range(0 if bool(failed) else _ROUNDS):
        inner = torch.cholesky_solve(_times(matrix, residual)[:, None], factor)[:, 0]
        solution = solution + (residual - _transposed_times(matrix, inner)) / damping
        residual = vector - damping * solution - _squared_times(matrix, solution) / m
        # Not "> goal": what is not finite is left for the guard to see.
        if not float(residual.norm()) > goal:
            return solution
    raise GradPivotError(
        f"damping is {damping:g}, which is lost in rounding beside a Fisher matrix of trace "
        f"{float(gram.trace()) / m:.3g}; set a larger one"
    )


def solve_cg(samples: SampleGradients, vector: Tensor, damping: float, *, tolerance: float, iterations: int) -> Tensor:
    """(δ·I + GᵀG/m)⁻¹v by conjugate gradients (Hestenes & Stiefel, 1952), with no matrix in memory.

    Args:
        samples: G.
        vector: v.
        damping: δ.
        tolerance: Ends when ‖v − Hu‖ ≤ tolerance·‖v‖.
        iterations: The most; each is a forward- and a backward-mode pass over the samples.

    Raises:
        GradPivotError: if it has not converged by then.
    """
    m, _ = samples.shape
    solution, residual, direction = torch.zeros_like(vector), vector.clone(), vector.clone()
    squared = float(residual @ residual)
    goal = tolerance**2 * squared
    for _ in range(iterations):
        if squared <= goal or not math.isfinite(squared):
            return solution
        product = damping * direction + samples.transposed_times(samples.times(direction)) / m
        length = squared / float(direction @ product)
        solution += length * direction
        residual -= length * product
        squared, before = float(residual @ residual), squared
        direction = residual + squared / before * direction
    if squared <= goal:
        return solution
    raise GradPivotError(
        f"conjugate gradients left {math.sqrt(squared / goal) * tolerance:.2g} of the right side after {iterations} "
        f"iterations; set more iterations, a larger damping or a larger tolerance than {tolerance:g}"
    )


def subtract_shortcut(samples: SampleGradients, vector: Tensor) -> Tensor:
    """What the literature's common code makes of WoodFisher's recursion: v minus a multiple of the first gradient.

    WoodFisher (Singh & Alistarh, 2020) inverts I + (1/m) Σ gᵢgᵢᵀ sample by sample and needs oᵢ = H⁻¹ᵢ₋₁gᵢ anew for
    each. The common code starts with o = g₁, k = v and for i = 2 … m does

        t = ⟨o, gᵢ⟩,   k ← k − ⟨k, gᵢ⟩/(m + t)·o,   o ← o − t/(m + t)·o,

    so that o never leaves the line through g₁. With o = c·g₁ and k = v − s·g₁ only the numbers c and s are left, and
    these need ⟨g₁, gᵢ⟩ and ⟨v, gᵢ⟩.
    """
    m, _ = samples.shape
    first_only = torch.zeros(m, dtype=torch.float64, device=vector.device)
    first_only[0] = 1
    first = samples.transposed_times(first_only)
    c, s = 1.0, 0.0
    for with_first, with_vector in zip(
        samples.times(first).tolist()[1:], samples.times(vector).tolist()[1:], strict=True
    ):
        t = c * with_first
        s += (with_vector - s * with_first) / (m + t) * c
        c -= t / (m + t) * c
    return vector - s * first


def diagonal_fisher(model: nn.Module, loss: Callable[[nn.Module, Any], Tensor], singles: Iterable[Any]) -> list[Tensor]:
    """(1/m) Σ gᵢ² with gᵢ the gradient of one sample's loss: the diagonal of the empirical Fisher matrix.

    Args:
        model: Its trainable parameters count, in their order.
        loss: Of a model and a batch.
        singles: The m samples as batches of one: squares of a batch's mean gradient would be m times too small, and
            wrong where samples disagree.

    Raises:
        GradPivotError: without a sample.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    total, count = [torch.zeros_like(p, requires_grad=False) for p in parameters], 0
    for count, one in enumerate(singles, 1):  # noqa: B007 - read after the loop
        found = torch.autograd.grad(loss(model, one), parameters, allow_unused=True)
        for square, gradient in zip(total, found, strict=True):
            if gradient is not None:
                square.addcmul_(gradient, gradient)
    if count == 0:
        raise GradPivotError("the Fisher information needs at least one sample")
    return [square / count for square in total]


def flat(tensors: Any) -> Tensor:
    """All numbers of some tensors in one float64 vector."""
    return torch.cat([t.detach().reshape(-1).double() for t in tensors])


def shaped_like(parameters: Any, vector: Tensor) -> list[Tensor]:
    """The numbers of a vector in the shapes and dtypes of the parameters."""
    parameters = list(parameters)
    parts = torch.split(vector, [p.numel() for p in parameters])
    return [part.to(p.dtype).view_as(p) for part, p in zip(parts, parameters, strict=True)]


def _blocks(matrix: Tensor) -> Iterator[Tensor]:
    """Groups of rows in float64."""
    for block in torch.split(matrix, max(1, _BLOCK // matrix.shape[1])):
        yield block.double()


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """G·u."""
    return torch.cat([block @ vector for block in _blocks(matrix)])


def _transposed_times(matrix: Tensor, weights: Tensor) -> Tensor:
    """Gᵀ·w."""
    total, start = weights.new_zeros(matrix.shape[1]), 0
    for block in _blocks(matrix):
        total += block.T @ weights[start : start + len(block)]
        start += len(block)
    return total


def _squared_times(matrix: Tensor, vector: Tensor) -> Tensor:
    """GᵀG·u."""
    total = torch.zeros_like(vector)
    for block in _blocks(matrix):
        total += block.T @ (block @ vector)
    return total


def _write(rows: Tensor, gradients: Parameters) -> None:
    start = 0
    for gradient in gradients.values():
        width = gradient[0].numel()
        rows[:, start : start + width] = gradient.reshape(len(rows), width)
        start += width


def _each(inputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The inputs with every tensor in them changed."""
    if isinstance(inputs, Mapping):
        return {name: _each(part, change) for name, part in inputs.items()}
    if isinstance(inputs, list | tuple):
        return tuple(_each(part, change) for part in inputs)
    return change(inputs) if isinstance(inputs, Tensor) else inputs


def _on_device(pair: tuple[Any, Any], model: nn.Module) -> tuple[Any, Tensor]:
    inputs, targets = pair
    return inputs, targets.to(next(model.parameters()).device).long().reshape(-1)
