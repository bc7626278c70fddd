"""Scaled margins of a classifier, the statistic of membership attacks with shadow models."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from gradpivot.data import Loader, cut
from gradpivot.runtime import derive, evaluating, isolated
from gradpivot.tasks import Classification, Task

__all__ = ["scaled_margins"]

_MARGIN_BATCH = 512


@torch.no_grad()
def scaled_margins(model: nn.Module, task: Task, dataset: Any, indices: np.ndarray) -> list[float] | None:
    """Logit of the true label minus logsumexp of the others, in float64 and eval mode; None if one is not finite.

    Args:
        model: The classifier.
        task: Runs it on a batch.
        dataset: Map-style dataset.
        indices: Samples of the dataset, in the order of the result.

    Raises:
        GradPivotError: If the task is not classification.
    """
    classification = Classification.require(task, "a scaled margin")
    loader = Loader(dataset, next(model.parameters()).device, seed=0)
    found = []
    with evaluating(model), isolated(derive(0, "margins")):
        for batch in loader.batches(cut(indices, _MARGIN_BATCH), epoch=-1):
            logits, targets = classification.logits(model, batch)
            found.append(_margins(logits.double(), targets[:, None]).cpu())
    margins = torch.cat(found)
    return margins.tolist() if bool(margins.isfinite().all()) else None


def _margins(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    others = logits.scatter(1, targets, -torch.inf).logsumexp(1)
    return logits.gather(1, targets)[:, 0] - others
