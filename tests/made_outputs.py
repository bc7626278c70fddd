"""Subjects of audits whose models read their logits off the data: outputs are chosen, nothing is trained."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import ForgetSplit
from gradpivot.auditing.subject import Subject

CLASSES = 3


class Reader(nn.Module):
    """Returns the features from one column on as logits."""

    def __init__(self, column: int) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(()))
        self.column = column

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        start = CLASSES * self.column
        return features[:, start : start + CLASSES] + self.place


def written(margins: np.ndarray, labels: np.ndarray) -> torch.Tensor:
    """Logits with these scaled margins, a model after the other: samples × (models · classes)."""
    logits = np.zeros((len(labels), len(margins), CLASSES))
    for column, row in enumerate(margins):
        logits[np.arange(len(labels)), column, labels] = row + np.log(CLASSES - 1)
    return torch.tensor(logits.reshape(len(labels), -1))


def subject_with(
    forget: np.ndarray, unseen: np.ndarray, *, retrained: int = 1, original: bool = True, kind: str = "random"
) -> Subject:
    """A subject whose models have these margins (models × samples): audited, retrained ones, original.

    A class split forgets class 0; the test data have 20 further samples of other classes. There are 60 retained
    samples with margins of 0.
    """
    count = len(forget)
    kept, others = np.zeros((count, 60)), np.zeros((count, 20 if kind == "class" else 0))
    first = 0 if kind == "class" else None
    parts = [forget, kept, unseen, others]
    labels = [
        np.full(part.shape[1], first) if first is not None and number in (0, 2) else 1 + np.arange(part.shape[1]) % 2
        for number, part in enumerate(parts)
    ]
    train, test = (
        TensorDataset(
            written(np.hstack(parts[at : at + 2]), np.concatenate(labels[at : at + 2])),
            torch.tensor(np.concatenate(labels[at : at + 2])),
        )
        for at in (0, 2)
    )
    split = (
        ForgetSplit.by_class(train, test, 0)
        if kind == "class"
        else ForgetSplit.by_index(train, test, range(forget.shape[1]))
    )
    if kind == "random":
        split = ForgetSplit(
            train=split.train, test=split.test, forget_indices=split.forget_indices.copy(),
            retain_indices=split.retain_indices.copy(), kind="random", target=split.target,
        )  # fmt: skip
    models = [Reader(column).double() for column in range(count)]
    return Subject(
        model=models[0],
        split=split,
        retrained=tuple(models[1 : 1 + retrained]),
        original=models[-1] if original else None,
    )


def normal(seed: int, shifts: list[float], n: int) -> np.ndarray:
    """Margins of several models that agree in part on how hard a sample is."""
    generator = np.random.default_rng(seed)
    return np.array(shifts)[:, None] + generator.normal(size=n) + 0.5 * generator.normal(size=(len(shifts), n))
