from __future__ import annotations

import pytest
import torch

from gradpivot import ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.methods import WarmRestart
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import TinyNet, blobs, trained


class TestWarmRestart(MethodContract):
    method = WarmRestart(shrink=0.1, epochs=20, batch_size=16)
    # A small network may keep recognising a blob that it was once trained on; its UA is measured elsewhere.
    least_ua = 0.0


def distance(shrink: float) -> float:
    """How far the restart alone moves the weights."""
    original = trained()
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    method = WarmRestart(shrink=shrink, lr=1e-12, epochs=1)
    after = unlearn(original, split, method, factory=TinyNet).model
    pairs = zip(original.parameters(), after.parameters(), strict=True)
    return float(sum((a - b).detach().square().sum() for a, b in pairs))


def test_shrink_goes_from_fine_tuning_to_retraining():
    kept, half, none = (distance(shrink) for shrink in (1.0, 0.5, 0.0))
    assert kept == pytest.approx(0, abs=1e-12)
    assert half == pytest.approx(none / 4, rel=1e-3)


def test_a_weight_that_cannot_be_reset_asks_for_a_factory():
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.layer = torch.nn.Parameter(torch.full((4,), 2.0)), torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.scale * x)

    split = ForgetSplit.random(blobs(), blobs(seed=1), 0.1)
    with pytest.raises(GradPivotError, match="scale cannot be re-initialised; pass factory=make_model"):
        unlearn(Scaled(), split, WarmRestart(epochs=1))
    unlearn(Scaled(), split, WarmRestart(epochs=1), factory=Scaled)


@pytest.mark.parametrize("shrink", [-0.1, 1.1, float("nan")])
def test_shrink_is_a_fraction(shrink):
    with pytest.raises(GradPivotError, match="shrink is"):
        WarmRestart(shrink=shrink)
