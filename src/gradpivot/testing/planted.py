"""Models that only claim to have forgotten, for testing audits: each must be caught."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from gradpivot.data import Loader, shuffled
from gradpivot.runtime import derive, isolated

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit

__all__ = ["Masked", "destroyed", "memorised"]


class Masked(nn.Module):
    """A fake: the original model with the forgotten classes' logits masked. UA is 100 %, nothing is forgotten."""

    def __init__(self, model: nn.Module, classes: tuple[int, ...], value: float = -1e9) -> None:
        super().__init__()
        self.inner, self.classes, self.value = copy.deepcopy(model), list(classes), value

    def forward(self, inputs: Tensor) -> Tensor:
        """The inner model's logits, with ``value`` for the forgotten classes."""
        logits: Tensor = self.inner(inputs).clone()
        logits[:, self.classes] = self.value
        return logits


def memorised(model: nn.Module, split: ForgetSplit, *, steps: int = 400, lr: float = 3e-3, seed: int = 0) -> nn.Module:
    """A fake: the model trained until it knows the forget set by heart, with random wrong labels."""
    fake = copy.deepcopy(model).train()
    device = next(fake.parameters()).device
    loader, optimizer = Loader(split.train, device, seed=seed), torch.optim.Adam(fake.parameters(), lr=lr)
    wrong = _wrong_labels(split, seed)
    with isolated(derive(seed, "memorise")):
        for step in range(steps):
            retain = shuffled(split.retain_indices, seed, f"memorise {step}")[: len(split.forget_indices)]
            (inputs, _), (kept, labels) = loader.batches([split.forget_indices, retain], epoch=step)
            loss = nn.functional.cross_entropy(fake(inputs), wrong) + nn.functional.cross_entropy(fake(kept), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return fake.eval()


def _wrong_labels(split: ForgetSplit, seed: int) -> Tensor:
    """A random label other than the true one for every forget sample."""
    generator = np.random.default_rng(derive(seed, "wrong labels"))
    classes = int(split.test_labels.max()) + 1
    true = np.array([int(split.target(split.train[int(index)])) for index in split.forget_indices])
    return torch.from_numpy((true + generator.integers(1, classes, len(true))) % classes)


def destroyed(model: nn.Module, *, scale: float = 1.0, seed: int = 0) -> nn.Module:
    """A fake: the model forgot because noise as large as its weights destroyed it."""
    fake = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(derive(seed, "destroy"))
    with torch.no_grad():
        for weight in fake.parameters():
            noise = torch.randn(weight.shape, generator=generator).to(weight)
            weight.add_(scale * noise * weight.pow(2).mean().sqrt())
    return fake.eval()
