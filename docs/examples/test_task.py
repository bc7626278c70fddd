import pytest
import torch
from my_task import Regression
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import CUP, ForgetSplit, score, unlearn


@pytest.fixture
def problem():
    """A line with a bump to forget, fitted by a small network."""
    torch.manual_seed(0)
    inputs = torch.linspace(-2, 2, 240)[:, None]
    bump = (inputs[:, 0] - 1).abs() < 0.3
    target = inputs[:, 0] / 2 + 3 * bump
    data = TensorDataset(inputs, target)
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(1500):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs)[:, 0], target).backward()
        optimizer.step()
    return model, ForgetSplit.by_index(data, data, bump.nonzero()[:, 0].tolist())


def test_the_dial_and_targets_take_the_task(problem):
    model, split = problem
    before = score(model, split, task=Regression())
    assert before.ra > 0.9
    assert before.ua < 0.2
    result = unlearn(model, split, CUP(gamma=0.6, epochs=20), task=Regression())
    assert result.scores.ua == pytest.approx(0.81, abs=0.15)  # sin(π·0.6/2)
    found = unlearn(model, split, CUP(epochs=20), task=Regression(), until="UA>=50")
    assert found.met
    assert found.scores.ua >= 0.5
