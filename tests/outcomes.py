"""What became of the forgotten class, on all of its samples: one batch's loss is noise."""

from __future__ import annotations

import torch
from torch import nn

from gradpivot.testing import blobs


def forget_cross_entropy(model: nn.Module) -> float:
    """The cross-entropy of class 0 of the blobs."""
    features, labels = blobs().tensors
    chosen = labels == 0
    with torch.no_grad():
        logits = model.eval()(features[chosen]).double()
    return float(nn.functional.cross_entropy(logits, labels[chosen]))
