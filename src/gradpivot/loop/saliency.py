"""Weight saliency for the forget set (SalUn; Fan et al., ICLR 2024, eq. 3–4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.geometry import plain_gradient
from gradpivot.runtime import evaluating

if TYPE_CHECKING:
    from gradpivot.tasks import Task

__all__ = ["saliency_mask"]


def saliency_mask(model: nn.Module, task: Task, batches: Iterable[tuple[Any, int]], share: float) -> list[Tensor]:
    """Select the most salient weights: the global top ``share`` of ``|Σ_{x∈D_f} ∇_θ(−CE(x))|``.

    Gradients are summed before taking the absolute value, with the model in eval mode. CE is the task's retain loss,
    a mean over the batch.

    Args:
        model: The original model.
        task: Runs the model on a batch.
        batches: D_f as (batch, sample count) pairs.
        share: Fraction of the trainable weights to select, in (0, 1].

    Returns:
        One boolean tensor per trainable parameter, in the order of ``model.parameters()``. Exactly ``round(share · n)``
        of the n weights are True; ties go to the first in that order. Memory: two gradients and n booleans. Time: one
        pass over D_f, then O(n).

    Raises:
        NonFiniteError: If a gradient is NaN or infinite.
        GradPivotError: If the fraction selects no weight.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    with evaluating(model):
        sums = _summed_gradients(model, task, batches, parameters)
    saliency = torch.cat([s.abs_().reshape(-1).to(sums[0].device) for s in sums])
    total = float(saliency.sum(dtype=torch.float64))
    if not math.isfinite(total):
        raise NonFiniteError(f"the gradient on the forget set is {total}; cannot rank the weights")
    chosen = _largest(saliency, _count(share, len(saliency)))
    parts = torch.split_with_sizes(chosen, [p.numel() for p in parameters])
    return [part.view(p.shape).to(p.device) for part, p in zip(parts, parameters, strict=True)]


def _summed_gradients(
    model: nn.Module, task: Task, batches: Iterable[tuple[Any, int]], parameters: Sequence[Tensor]
) -> list[Tensor]:
    """Σ∇CE per parameter, in float32 or higher precision."""
    sums = [torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32)) for p in parameters]
    for batch, samples in batches:
        gradients = plain_gradient(task.retain_loss(model, batch), parameters)
        for total, gradient in zip(sums, gradients, strict=True):
            if gradient is not None:
                total.add_(gradient, alpha=samples)
    return [total.detach() for total in sums]


def _count(share: float, weights: int) -> int:
    if not 0 < share <= 1:
        raise GradPivotError(f"saliency is {share}; it must be > 0 and ≤ 1")
    count = round(share * weights)
    if count == 0:
        raise GradPivotError(
            f"saliency is {share}, which selects none of {weights:,} weights; use at least {1 / weights:.1g}"
        )
    return count


def _largest(values: Tensor, count: int) -> Tensor:
    """Mask of the ``count`` largest values; ties go to the first.

    Uses the threshold value rather than sorting, whose n indices take eight bytes each.
    """
    threshold = values.kthvalue(len(values) - count + 1).values
    chosen = values > threshold
    missing = count - int(chosen.sum())
    chosen[(values == threshold).nonzero()[:missing, 0]] = True
    return chosen
