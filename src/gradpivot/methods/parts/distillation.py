"""Distillation of a classifier from a frozen teacher."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div

if TYPE_CHECKING:
    from gradpivot.tasks import Classification

__all__ = ["divergence", "frozen_copy"]


def frozen_copy(model: nn.Module) -> nn.Module:
    """A copy in eval mode whose weights need no gradients.

    Make it before the first batch, which loads a checkpoint: a resumed run needs the same teacher.
    """
    return copy.deepcopy(model).eval().requires_grad_(requires_grad=False)


def divergence(
    task: Classification, model: nn.Module, teacher: nn.Module, batch: Any, temperature: float = 1.0
) -> Tensor:
    """Mean KL(softmax(z_teacher/T) ‖ softmax(z/T)) over a batch; both networks see the same augmented inputs."""
    inputs, _ = task.adapter(batch)
    with torch.no_grad():
        wanted = (task.outputs(teacher, inputs) / temperature).softmax(1)
    return kl_div((task.outputs(model, inputs) / temperature).log_softmax(1), wanted, reduction="batchmean")
