"""Train and eval mode of a model's modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["evaluating"]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run the block in eval mode, eagerly so that nothing is recompiled, then restore each module's mode."""
    modes = [module.training for module in model.modules()]
    model.eval()
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        for module, training in zip(model.modules(), modes, strict=True):
            module.training = training
