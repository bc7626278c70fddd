from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import Classification, ForgetSplit
from gradpivot.loop.loop import Loop
from gradpivot.methods.parts.rewinding import Rewinding


def data(labels: list[int]) -> TensorDataset:
    """Points at 0, 1, 2, …"""
    return TensorDataset(torch.arange(len(labels), dtype=torch.float32)[:, None], torch.tensor(labels))


class Threshold(nn.Module):
    """Predicts class 1 from a point on, 0 before it."""

    def __init__(self, point: float) -> None:
        super().__init__()
        self.point = nn.Parameter(torch.tensor(point))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.point - inputs, inputs - self.point], dim=1)


def rewound(ends: list[float], split: ForgetSplit) -> tuple[float, str | None]:
    """Where the choice among these thresholds falls, the last one the final model, and its note."""
    loop, model = Loop(), Threshold(0.5)
    rewinding = Rewinding(model, Classification(), split, loop)
    for end in ends:
        model.load_state_dict(Threshold(end).state_dict())
        rewinding.keep(model)
    rewinding.rewind(model, lambda: None)
    return float(model.point.detach()), loop._note


def split(held_out: list[int]) -> ForgetSplit:
    """Ten points of class 1 to forget, one of class 0 to keep."""
    return ForgetSplit.by_class(data([1] * 10 + [0]), data([0, 1]), 1, validation=data(held_out))


def test_the_nearest_error_wins():
    """Thresholds are the number of forgotten points; the final model is wrong on 6 of 10 held-out ones."""
    point, note = rewound([1.5, 4.5, 7.5, 5.5], split([1] * 10))
    assert point == 5.5
    assert note.startswith("not rewound")
    # The final model is wrong on the first 5 of 20 held-out points.
    point, note = rewound([0.5, 2.5, 9.5, 4.5], split([1] * 20))
    assert point == 2.5
    assert note == (
        "rewound to the end of epoch 2: the error on the forget set is 30.0 %, that on held-out data with the same "
        "labels 25.0 %"
    )


def test_of_equally_near_ends_the_last_wins():
    point, note = rewound([9.5, 9.25, 8.5, 9.75], split([1] * 10))
    assert point == 9.75
    assert note.startswith("not rewound")


def test_held_out_labels_are_weighted_as_in_the_forget_set():
    """Three of four to forget are of class 1, which the model gets wrong; one in four held-out samples is."""
    train, held_out = data([1, 1, 1, 0, 0, 1]), data([1, 0, 0, 0])
    chosen = ForgetSplit.by_index(train, data([0, 1]), [0, 1, 2, 3], validation=held_out)
    model = Threshold(9.5)
    rewinding = Rewinding(model, Classification(), chosen, Loop())
    assert rewinding.forget_error(model) == pytest.approx(0.75)
    assert rewinding.held_out_error(model) == pytest.approx(0.75)
