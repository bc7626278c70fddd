"""Tiny problems: separable blobs, and a network with dropout and BatchNorm that trains in half a second."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot.data import ForgetSplit
from gradpivot.loop import Loop
from gradpivot.methods import Retrain
from gradpivot.tasks import Classification

__all__ = ["Guarded", "TinyNet", "blobs", "trained"]


class TinyNet(nn.Module):
    """An MLP from 4 features to 3 classes, with BatchNorm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Map features (n, 4) to logits (n, 3)."""
        logits: torch.Tensor = self.layers(features)
        return logits


def blobs(per_class: int = 40, seed: int = 0) -> TensorDataset:
    """Three well-separated Gaussian blobs in four dimensions."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(3 * per_class) % 3
    centres = 3 * torch.eye(4)[:3]
    return TensorDataset(centres[labels] + 0.7 * torch.randn(len(labels), 4, generator=generator), labels)


class Guarded(TensorDataset):
    """Test data that raise on access."""

    def __getitem__(self, index: Any) -> Any:
        """Raise."""
        raise AssertionError("a method read the test data")

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Raise: data on the device are read through this property."""
        raise AssertionError("a method read the test data")

    @tensors.setter
    def tensors(self, value: tuple[torch.Tensor, ...]) -> None:
        self._size = len(value[0])

    def __len__(self) -> int:
        return self._size


class _TrainOnAll:
    def unlearn(self, model: nn.Module, task: Any, split: ForgetSplit, loop: Loop) -> None:
        Retrain(epochs=20, lr=0.1, batch_size=20).fit(model, task, split.train, np.arange(len(split.train)), loop)


@cache
def _trained() -> nn.Module:
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(0)
    model = TinyNet()
    torch.random.set_rng_state(torch_state)
    return Loop(seed=0).run(_TrainOnAll(), model, Classification(), split).model.eval()


def trained() -> nn.Module:
    """A :class:`TinyNet` trained on :func:`blobs`: trained once per process and copied for each call."""
    model = TinyNet()
    model.load_state_dict(_trained().state_dict())
    return model.eval()
