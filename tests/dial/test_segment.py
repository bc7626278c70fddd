from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from gradpivot.dial.segment import Segment, false_position
from gradpivot.errors import GradPivotError


def network(seed: int, width: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width), nn.Linear(width, 2))
    model[1].running_mean.normal_()
    return model


@pytest.mark.parametrize("share", [0, 0.25, 1, 1.5])
def test_points_of_the_line(share):
    start, end, model = network(0), network(1), network(2)
    line = Segment(start)
    line.set_end(end)
    line.interpolate(model, share)
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            a, b = start.state_dict()[name], end.state_dict()[name]
            torch.testing.assert_close(value, a + share * (b - a))


def test_its_ends_are_exact():
    start, end, model = network(0), network(1), network(2)
    line = Segment(start)
    line.set_end(end)
    for share, expected in ((0, start), (1, end)):
        line.interpolate(model, share)
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))


def test_its_ends_are_copies():
    start, end, model = network(0), network(1), network(2)
    line = Segment(start)
    line.set_end(end)
    kept = [p.detach().clone() for p in start.parameters()]
    with torch.no_grad():
        for p in [*start.parameters(), *end.parameters()]:
            p.zero_()
    line.interpolate(model, 0)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), kept, strict=True))


def test_it_needs_an_end_of_its_own_shape():
    line = Segment(network(0))
    with pytest.raises(GradPivotError, match="no end"):
        line.interpolate(network(0), 0.5)
    with pytest.raises(GradPivotError, match="different shapes"):
        line.set_end(network(0, width=4))


@given(wanted=st.floats(0.01, 0.99), steep=st.floats(0.3, 8))
def test_false_position_finds_the_share(wanted, steep):
    share, found = false_position(
        lambda s: s**steep, wanted, between=((0.0, 0.0), (1.0, 1.0)), tolerance=0.005, max_evaluations=20
    )
    assert found == pytest.approx(wanted, abs=0.005)
    assert share**steep == found


@given(wanted=st.floats(0.02, 0.98), centre=st.floats(0.2, 0.8), steep=st.floats(1, 40))
def test_a_bend_takes_no_more_than_a_few_looks(wanted, centre, steep):
    """Halving takes 7 to a hundredth; a chord that one end holds for ever would take many more."""
    seen = []

    def bent(share: float) -> float:
        seen.append(share)
        return 1 / (1 + math.exp(-steep * (share - centre)))

    ends = bent(0.0), bent(1.0)
    goal = ends[0] + (ends[1] - ends[0]) * wanted
    false_position(bent, goal, between=((0.0, ends[0]), (1.0, ends[1])), tolerance=0.01, max_evaluations=40)
    assert len(seen) - 2 <= 12


def test_a_straight_line_takes_one_look():
    assert false_position(lambda s: 3 + 2 * s, 3.5, between=((0, 3), (1, 5)), tolerance=1e-9, max_evaluations=1) == (
        0.25,
        3.5,
    )


def test_it_gives_the_nearest_it_has_seen():
    seen = []

    def stairs(share: float) -> float:
        seen.append(share)
        return 0.0 if share < 0.6 else 1.0

    share, found = false_position(stairs, 0.3, between=((0.0, 0.0), (1.0, 1.0)), tolerance=0.01, max_evaluations=5)
    assert len(seen) == 5
    assert (share < 0.6, found) == (True, 0.0)
