"""The damped empirical Fisher matrix and inverse-vector products.

H = δ·I + (1/m) Σ gᵢgᵢᵀ with gᵢ the cross-entropy gradient of one sample. With G the m×p matrix of rows gᵢ,
H = δ·I + GᵀG/m. Vectors are flat and float64; G has the dtype of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vjp, vmap
from torch.nn.functional import cross_entropy

from gradpivot.data import shuffled
from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Classification, Task

__all__ = [
    "SampleGradients",
    "diagonal_fisher",
    "flatten",
    "solve_cg",
    "solve_woodbury",
    "split_fisher",
    "subtract_shortcut",
    "unflatten_like",
]

_BLOCK_SIZE = 1 << 17
"""Elements of G converted to float64 at a time: 1 MB, which fits in the cache."""

_MAX_RESIDUAL, _MAX_REFINEMENTS = 1e-10, 10
"""Relative residual and number of iterative-refinement rounds of the direct solver."""

Parameters = dict[str, Tensor]


class SampleGradients:
    """The m×p matrix G of per-sample cross-entropy gradients, without storing it.

    Args:
        model: A model in eval mode; only trainable parameters count.
        task: Runs the model.
        batches: The m samples, in memory.
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
        """Size of the dense G in bytes."""
        m, _ = self.shape
        return m * sum(p.numel() * p.element_size() for p in self._parameters.values())

    def times(self, vector: Tensor) -> Tensor:
        """G·u by forward-mode differentiation."""
        tangent = self._shaped(vector)
        return torch.cat([jvp(losses, (self._parameters,), (tangent,))[1] for losses in self._losses()]).double()

    def transposed_times(self, weights: Tensor) -> Tensor:
        """Gᵀ·w by backward passes over the weighted losses."""
        total = torch.zeros(self.shape[1], dtype=torch.float64, device=weights.device)
        rest = weights
        for losses in self._losses():
            values, pull = vjp(losses, self._parameters)[:2]
            total += flatten(pull(rest[: len(values)].to(values.dtype))[0].values())
            rest = rest[len(values) :]
        return total

    def dense(self) -> Tensor:
        """The dense G, by vmap where the model supports it, else sample by sample."""
        first = next(iter(self._parameters.values()))
        matrix = first.new_empty(self.shape)
        start = 0
        for inputs, targets in self._batches:
            stop = start + len(targets)
            try:
                rows = vmap(grad(self._loss_of_one), in_dims=(None, 0, 0))(self._parameters, inputs, targets)
                _write(matrix[start:stop], rows)
            except (RuntimeError, ValueError):
                # For example a model with data-dependent control flow. The result is the same.
                for i in range(len(targets)):
                    one = _map_tensors(inputs, itemgetter(i))
                    row = grad(self._loss_of_one)(self._parameters, one, targets[i])
                    _write(matrix[start + i : start + i + 1], {n: g[None] for n, g in row.items()})
            start = stop
        return matrix

    def _losses(self) -> Iterator[Callable[[Parameters], Tensor]]:
        """For each batch, the per-sample losses as a function of the weights."""
        for inputs, targets in self._batches:
            yield partial(self._losses_of, inputs=inputs, targets=targets)

    def _losses_of(self, parameters: Parameters, inputs: Any, targets: Tensor) -> Tensor:
        return cross_entropy(self._logits(parameters, inputs), targets, reduction="none")

    def _loss_of_one(self, parameters: Parameters, inputs: Any, target: Tensor) -> Tensor:
        return cross_entropy(self._logits(parameters, _map_tensors(inputs, itemgetter(None))), target[None])

    def _logits(self, parameters: Parameters, inputs: Any) -> Tensor:
        def run(*positional: Any, **named: Any) -> Any:
            return functional_call(self._model, parameters, positional, named)

        return self._task.outputs(run, inputs)

    def _shaped(self, vector: Tensor) -> Parameters:
        return dict(zip(self._parameters, unflatten_like(self._parameters.values(), vector), strict=True))


def solve_woodbury(matrix: Tensor, vector: Tensor, damping: float) -> Tensor:
    """(δ·I + GᵀG/m)⁻¹v = (v − Gᵀ(mδ·I + GGᵀ)⁻¹Gv)/δ: exact, through an m×m system.

    GGᵀ, most of the work, is computed in the dtype of the weights, and the difference cancels where v lies in the span
    of the samples. Iterative refinement in float64 corrects both errors.

    Raises:
        GradPivotError: If the damping is too small for the precision.
    """
    m = len(matrix)
    gram = (matrix @ matrix.T).double()
    gram.diagonal().add_(m * damping)
    factor, failed = torch.linalg.cholesky_ex(gram)
    solution, residual = torch.zeros_like(vector), vector
    goal = _MAX_RESIDUAL * float(vector.norm())
    for _ in range(0 if bool(failed) else _MAX_REFINEMENTS):
        inner = torch.cholesky_solve(_times(matrix, residual)[:, None], factor)[:, 0]
        solution = solution + (residual - _transposed_times(matrix, inner)) / damping
        residual = vector - damping * solution - _squared_times(matrix, solution) / m
        # "not >", so that a non-finite residual is returned and the divergence check sees it.
        if not float(residual.norm()) > goal:
            return solution
    raise GradPivotError(
        f"damping is {damping:g}, too small for a Fisher matrix with trace {float(gram.trace()) / m:.3g}; increase it"
    )


def solve_cg(samples: SampleGradients, vector: Tensor, damping: float, *, tolerance: float, iterations: int) -> Tensor:
    """(δ·I + GᵀG/m)⁻¹v by conjugate gradients (Hestenes & Stiefel, 1952), without storing G.

    Args:
        samples: G.
        vector: v.
        damping: δ.
        tolerance: Stop when ‖v − Hu‖ ≤ tolerance·‖v‖.
        iterations: Maximum number of iterations, each a forward- and a backward-mode pass over the samples.

    Raises:
        GradPivotError: If it does not converge.
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
        f"conjugate gradients did not converge in {iterations} iterations: the relative residual is "
        f"{math.sqrt(squared / goal) * tolerance:.2g}; increase iterations, damping or tolerance (now {tolerance:g})"
    )


def subtract_shortcut(samples: SampleGradients, vector: Tensor) -> Tensor:
    """The literature's common implementation of WoodFisher: v minus a multiple of the first gradient.

    WoodFisher (Singh & Alistarh, 2020) inverts I + (1/m) Σ gᵢgᵢᵀ sample by sample and needs a new oᵢ = H⁻¹ᵢ₋₁gᵢ for
    each. The common code starts with o = g₁, k = v and for i = 2 … m does

        t = ⟨o, gᵢ⟩,   k ← k − ⟨k, gᵢ⟩/(m + t)·o,   o ← o − t/(m + t)·o,

    so that o stays a multiple of g₁. With o = c·g₁ and k = v − s·g₁ only the scalars c and s remain, which need
    ⟨g₁, gᵢ⟩ and ⟨v, gᵢ⟩.
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
    """The diagonal of the empirical Fisher matrix, (1/m) Σ gᵢ² with gᵢ the gradient of one sample's loss.

    Args:
        model: The model.
        loss: Maps a model and a batch to the loss.
        singles: The m samples as batches of one; squaring a larger batch's mean gradient would underestimate them.

    Returns:
        One tensor per trainable parameter.

    Raises:
        GradPivotError: If there are no samples.
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


def split_fisher(
    model: nn.Module, task: Task, split: ForgetSplit, loop: Loop, samples: int
) -> tuple[list[Tensor], list[Tensor]]:
    """:func:`diagonal_fisher` of the retain loss over D_f and over D_r, in eval mode.

    Args:
        model: The original model.
        task: Runs the model.
        split: The data to forget and to retain.
        loop: Reads the data and seeds the choice of samples.
        samples: Maximum number of samples of each set, drawn at random.
    """

    def diagonal(indices: np.ndarray) -> list[Tensor]:
        # Sorted, so that with a whole set the result does not depend on the seed, not even in rounding.
        chosen = np.sort(shuffled(indices, loop.seed, "fisher")[:samples])
        singles = (one for _, one in loop.eval_batches(model, split.train, chosen, 1))
        return diagonal_fisher(model, task.retain_loss, singles)

    return diagonal(split.forget_indices), diagonal(split.retain_indices)


def flatten(tensors: Any) -> Tensor:
    """Concatenate tensors into one float64 vector."""
    return torch.cat([t.detach().reshape(-1).double() for t in tensors])


def unflatten_like(parameters: Any, vector: Tensor) -> list[Tensor]:
    """Split a vector into tensors with the shapes and dtypes of the parameters."""
    parameters = list(parameters)
    parts = torch.split(vector, [p.numel() for p in parameters])
    return [part.to(p.dtype).view_as(p) for part, p in zip(parts, parameters, strict=True)]


def _blocks(matrix: Tensor) -> Iterator[Tensor]:
    """Blocks of rows in float64."""
    for block in torch.split(matrix, max(1, _BLOCK_SIZE // matrix.shape[1])):
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


def _map_tensors(inputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Apply a function to every tensor in nested inputs."""
    if isinstance(inputs, Mapping):
        return {name: _map_tensors(part, change) for name, part in inputs.items()}
    if isinstance(inputs, list | tuple):
        return tuple(_map_tensors(part, change) for part in inputs)
    return change(inputs) if isinstance(inputs, Tensor) else inputs


def _on_device(pair: tuple[Any, Any], model: nn.Module) -> tuple[Any, Tensor]:
    inputs, targets = pair
    return inputs, targets.to(next(model.parameters()).device).long().reshape(-1)
