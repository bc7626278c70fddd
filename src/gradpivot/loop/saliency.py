"""Weight saliency: which weights matter most to what is to be forgotten (SalUn; Fan et al., ICLR 2024, eq. 3–4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.geometry import gradient_of
from gradpivot.runtime import evaluating

if TYPE_CHECKING:
    from gradpivot.tasks import Task

__all__ = ["saliency_mask"]


def saliency_mask(model: nn.Module, task: Task, batches: Iterable[tuple[Any, int]], share: float) -> list[Tensor]:
    """The most salient weights: the global top ``share`` of ``|Σ_{x∈D_f} ∇_θ(−CE(x))|``.

    The gradients are summed before the absolute value is taken, with the model in eval mode (its modes come back). −CE
    is the negative of the task's retain loss, a mean over the batch; the sign does not matter.

    Args:
        model: The original model.
        task: How to run it on a batch.
        batches: D_f as (batch, samples in it).
        share: Which fraction of the trainable weights is chosen, in (0, 1].

    Returns:
        One boolean tensor per trainable parameter, in the order of ``model.parameters()``. Exactly ``round(share · n)``
        of the n weights are True; among equal saliencies the first in that order are chosen. Memory: two gradients and
        n booleans. Time: one pass over D_f, then O(n).

    Raises:
        NonFiniteError: if a gradient is NaN or infinite.
        GradPivotError: if the share rounds to no weight at all.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    with evaluating(model):
        sums = _summed_gradients(model, task, batches, parameters)
    saliency = torch.cat([s.abs_().reshape(-1).to(sums[0].device) for s in sums])
    total = float(saliency.sum(dtype=torch.float64))
    if not math.isfinite(total):
        raise NonFiniteError(f"the gradient on the forget set is {total}, so no weight can be called salient")
    chosen = _largest(saliency, _count(share, len(saliency)))
    parts = torch.split_with_sizes(chosen, [p.numel() for p in parameters])
    return [part.view(p.shape).to(p.device) for part, p in zip(parts, parameters, strict=True)]


def _summed_gradients(
    model: nn.Module, task: Task, batches: Iterable[tuple[Any, int]], parameters: Sequence[Tensor]
) -> list[Tensor]:
    """Σ∇CE per parameter, in float32 where the weights have less."""
    sums = [torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32)) for p in parameters]
    for batch, samples in batches:
        gradients = gradient_of(task.retain_loss(model, batch), parameters)
        for total, gradient in zip(sums, gradients, strict=True):
            if gradient is not None:
                total.add_(gradient, alpha=samples)
    return [total.detach() for total in sums]


def _count(share: float, weights: int) -> int:
    if not 0 < share <= 1:
        raise GradPivotError(f"saliency is {share}; it must be a fraction > 0 and ≤ 1 of the weights")
    count = round(share * weights)
    if count == 0:
        raise GradPivotError(
            f"saliency is {share}, which is none of {weights:,} weights; give {1 / weights:.1g} or more"
        )
    return count


def _largest(values: Tensor, count: int) -> Tensor:
    """Where the ``count`` largest values are; of equal ones at the border the first.

    By the value at the border rather than by sorting, whose n indices take eight bytes each.
    """
    border = values.kthvalue(len(values) - count + 1).values
    chosen = values > border
    missing = count - int(chosen.sum())
    chosen[(values == border).nonzero()[:missing, 0]] = True
    return chosen
