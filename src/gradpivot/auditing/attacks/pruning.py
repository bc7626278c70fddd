"""Magnitude pruning: removing small weights may undo the changes by which a model was made to forget."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from gradpivot.auditing.attack import Attack, Measurement
from gradpivot.auditing.treatments import forget_accuracy_after, weighted_layers

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.auditing.subject import Subject

__all__ = ["PRUNE_30", "PRUNE_50", "PRUNE_70", "prune"]


@torch.no_grad()
def prune(model: nn.Module, share: float) -> None:
    """Set the smallest weights of all linear and convolutional layers together to zero, in place.

    Args:
        model: The model.
        share: Share of these weights to remove.
    """
    weights = [layer.get_parameter("weight") for layer in weighted_layers(model)]
    magnitudes = torch.cat([weight.abs().flatten().float() for weight in weights])
    count = int(share * len(magnitudes))
    if count == 0:
        return
    threshold = magnitudes.kthvalue(count).values
    for weight in weights:
        weight.masked_fill_(weight.abs().float() <= threshold, 0.0)


def _measure(subject: Subject, percent: int) -> Measurement:
    return forget_accuracy_after(subject, f"pruning of {percent} % of the weights", partial(prune, share=percent / 100))


def _attack(percent: int) -> Attack:
    return Attack(
        name=f"prune_{percent}",
        title=f"Pruning {percent} %",
        question="knowledge",
        meaning=f"Accuracy on the forgotten data after removing the {percent} % smallest weights.",
        measure=partial(_measure, percent=percent),
        noise=0.05,
        margin=0.10,
        threat="Anyone who has the weights; no data needed.",
    )


PRUNE_30, PRUNE_50, PRUNE_70 = _attack(30), _attack(50), _attack(70)
