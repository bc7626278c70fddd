"""Planted cases of an audit: what must be caught and what must pass, on a few hundred digits."""

from __future__ import annotations

import copy
from functools import cache

import numpy as np
import torch
from torch import nn

from gradpivot import testing
from gradpivot.auditing.subject import Subject
from gradpivot.data import ForgetSplit, load_digits
from gradpivot.runtime import isolated
from gradpivot.testing import Masked

FORGOTTEN = 3


class DigitNet(nn.Module):
    """An MLP whose narrow last layers make features of classes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 12), nn.ReLU(), nn.Linear(12, 10)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def masked(model: nn.Module, value: float = -1e9, label: int = FORGOTTEN) -> nn.Module:
    """A fake: the model behind a mask of the forgotten class's logit."""
    return Masked(model, (label,), value)


@cache
def class_split() -> ForgetSplit:
    return ForgetSplit.by_class(*_data(), FORGOTTEN)


@cache
def record_split() -> ForgetSplit:
    return ForgetSplit.random(*_data(), 0.1, seed=0)


def _data() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    train, test = load_digits()
    return tuple(tensor[:500] for tensor in train.tensors), test.tensors


@cache
def _weights(kind: str, seed: int) -> dict[str, torch.Tensor]:
    split = record_split() if "records" in kind else class_split()
    indices = split.retain_indices if kind.startswith("retrained") else np.arange(len(split.train))
    images, labels = (tensor[indices.copy()] for tensor in split.train.tensors)
    with isolated(seed):
        model = DigitNet()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(40):
            for batch in torch.randperm(len(labels)).split(50):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
                optimizer.step()
    return model.state_dict()


def _model(kind: str, seed: int) -> nn.Module:
    model = DigitNet()
    model.load_state_dict(_weights(kind, seed))
    return model.eval()


def original(seed: int = 0) -> nn.Module:
    """Trained on everything."""
    return _model("original", seed)


def retrained(seed: int = 1) -> nn.Module:
    """Trained without the forgotten class."""
    return _model("retrained", seed)


def retrained_on_records(seed: int = 1) -> nn.Module:
    """Trained without the records of :func:`record_split`."""
    return _model("retrained records", seed)


def destroyed(seed: int = 0) -> nn.Module:
    """The original with noise in its weights."""
    return testing.destroyed(original(seed), scale=4, seed=seed)


def case(model: nn.Module, seed: int = 0, **fields: object) -> Subject:
    """The model audited against an original and two retrained ones."""
    given = {"original": original(seed), "retrained": (retrained(seed + 1), retrained(seed + 2)), **fields}
    return Subject(model=copy.deepcopy(model), split=class_split(), **given)
