"""Quantisation: rounding the weights may undo the small changes by which a model was made to forget."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from gradpivot.auditing.attack import Attack, Measurement
from gradpivot.auditing.treatments import forget_accuracy_after, weighted_layers

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.auditing.subject import Subject

__all__ = ["QUANTISE_4", "QUANTISE_8", "quantise"]


@torch.no_grad()
def quantise(model: nn.Module, bits: int) -> None:
    """Round the weights of linear and convolutional layers in place: symmetric, one scale per output channel."""
    levels = 2 ** (bits - 1) - 1
    for layer in weighted_layers(model):
        weight = layer.get_parameter("weight")
        channels = 1 if getattr(layer, "transposed", False) else 0
        others = [axis for axis in range(weight.ndim) if axis != channels]
        scale = weight.abs().amax(dim=others, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)
        weight.copy_((weight / scale * levels).round() * (scale / levels))


def _measure(subject: Subject, bits: int) -> Measurement:
    return forget_accuracy_after(subject, f"{bits}-bit quantisation", partial(quantise, bits=bits))


def _attack(bits: int) -> Attack:
    return Attack(
        name=f"quantise_{bits}",
        title=f"{bits}-bit quantisation",
        question="knowledge",
        meaning=f"Accuracy on the forgotten data after rounding the weights to {bits} bits per output channel.",
        measure=partial(_measure, bits=bits),
        noise=0.05,
        margin=0.10,
        threat="Anyone who has the weights, or deploys them quantised; no data needed.",
    )


QUANTISE_8, QUANTISE_4 = _attack(8), _attack(4)
