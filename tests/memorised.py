"""A network that has memorised its training data: members and never-seen data look different to it."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import ForgetSplit


def noisy(count: int, seed: int) -> TensorDataset:
    """Points whose label depends on the first feature, but for a quarter of them: to know those is to remember them."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(count, 12, generator=generator)
    labels = (points[:, 0] > 0).long()
    wrong = torch.rand(count, generator=generator) < 0.25
    return TensorDataset(points, torch.where(wrong, 1 - labels, labels))


@cache
def memorising(seed: int) -> nn.Module:
    """A network that knows 240 noisy samples by heart, trained once per process."""
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 2))
    torch.random.set_rng_state(state)
    points, labels = noisy(240, seed).tensors
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(points), labels).backward()
        optimizer.step()
    return model.eval()


def memorised() -> nn.Module:
    """A network that knows all of its training data, and a quarter of all others wrongly."""
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 2))
    model.load_state_dict(memorising(0).state_dict())
    return model.eval()


def records(**options) -> ForgetSplit:
    return ForgetSplit.random(noisy(240, 0), noisy(400, 1), fraction=0.2, seed=0, **options)


def doubt(model: nn.Module, data: TensorDataset, indices: np.ndarray | None = None) -> float:
    points, labels = data.tensors
    chosen = slice(None) if indices is None else torch.as_tensor(np.array(indices))
    with torch.no_grad():
        p = model(points[chosen]).double().softmax(1).gather(1, labels[chosen][:, None])
    return float((1 - p).mean())
