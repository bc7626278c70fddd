"""Compute a·f + b·r in the memory of one of the two gradients, without a third copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradpivot.geometry.gramian import Gram, pieces_of
from gradpivot.geometry.weighting import Weights

if TYPE_CHECKING:
    from torch import Tensor

    Gradient = Sequence[Tensor | None]

__all__ = ["combine"]

# foreach rounds the weights and one product to float32 before the sum, and where a·f and b·r cancel that error
# grows by 1/sin α. Above this angle it stays within two units in the last place of ⟨g,f⟩/(‖g‖‖f‖).
_CANCELLING = 0.5


def combine(
    forget: Gradient, retain: Gradient, weights: Weights, gram: Gram, *, over: str = "retain"
) -> list[Tensor | None]:
    """The combined gradient per parameter, in the memory of ``forget`` or ``retain``.

    Args:
        forget: f per parameter; None stands for zero.
        retain: r per parameter; None stands for zero.
        weights: (a, b).
        gram: Their Gram matrix, to detect cancellation.
        over: Which of the two to overwrite; the other is unchanged.

    Returns:
        a·f + b·r per parameter, None where both are None. float32 and float64 take two foreach passes;
        half-precision gradients and nearly collinear ones are combined in float64 and rounded once.
    """
    target, target_weight, other, other_weight = (
        (retain, weights.retain, forget, weights.forget)
        if over == "retain"
        else (forget, weights.forget, retain, weights.retain)
    )
    if _is_delicate(forget, retain, weights, gram):
        return [_rounded_once(t, target_weight, o, other_weight) for t, o in zip(target, other, strict=True)]
    return _by_foreach(target, target_weight, other, other_weight)


def _is_delicate(forget: Gradient, retain: Gradient, weights: Weights, gram: Gram) -> bool:
    import torch

    # Beyond float32's range a weight cannot even be passed to foreach; its gradient may be tiny and the sum fine. Also,
    # neither a·f nor b·r may leave the range before they are added.
    a, b = map(abs, weights)
    if max(a, b, a * gram.forget_norm, b * gram.retain_norm) > 1e30:
        return True

    exact = (torch.float32, torch.float64)
    for f, r in zip(forget, retain, strict=True):
        part = r if f is None else f
        if part is not None and part.dtype not in exact:
            return True
    cosine = gram.cosine
    return (1 - cosine) * (1 + cosine) < _CANCELLING**2


def _by_foreach(target: Gradient, target_weight: float, other: Gradient, other_weight: float) -> list[Tensor | None]:
    import torch

    present = [t for t in target if t is not None]
    if present and target_weight != 1:
        torch._foreach_mul_(present, target_weight)
    both = [(t, o) for t, o in zip(target, other, strict=True) if t is not None and o is not None]
    if both and other_weight != 0:
        ts, os = zip(*both, strict=True)
        torch._foreach_add_(ts, os, alpha=other_weight)
    if len(both) == len(target):
        return [*target]
    return [
        t if t is not None else (None if o is None else o * other_weight) for t, o in zip(target, other, strict=True)
    ]


def _rounded_once(
    target: Tensor | None, target_weight: float, other: Tensor | None, other_weight: float
) -> Tensor | None:
    """One parameter in float64, rounded to the gradient's dtype at the end."""
    if target is None:
        return None if other is None else (other.double() * other_weight).to(other.dtype)
    addends: Sequence[Tensor | None] = [None] * len(pieces_of(target)) if other is None else pieces_of(other)
    for piece, more in zip(pieces_of(target), addends, strict=True):
        exact = piece.double().mul_(target_weight)
        piece.copy_(exact if more is None else exact.add_(more.double(), alpha=other_weight))
    return target
