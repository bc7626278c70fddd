"""How evenly a series follows γ: monotony, jumps, finite runs, by all other settings."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gradpivot.results.dial import DialCurve, dials
from gradpivot.results.frontier import Point
from gradpivot.results.record import Record

Build = Callable[..., Record]


def line(record: Build, ua: dict[float, float | None], **others: float) -> list[Point]:
    return [
        record("run", None if v is None else (1, v, 1, v), knob=g, settings={"gamma": g, **others}).point
        for g, v in ua.items()
    ]


def only(found: list[DialCurve]) -> DialCurve:
    (dial,) = found
    return dial


def test_two_sets_by_hand(record: Build) -> None:
    even = line(record, {0: 0.0, 0.5: 0.4, 1: 1.0})
    uneven = line(record, {0: 0.2, 0.5: 0.1, 1: 0.9})  # ranks 2, 1, 3: ρ = 1 − 6·2/(3·8) = 0.5
    dial = only(dials([even, uneven]))
    assert dial.values == (0, 0.5, 1)
    assert dial.rho.mean == pytest.approx(0.75)
    assert dial.jump.mean == pytest.approx((0.6 + 0.8) / 2)
    assert dial.largest_jump == pytest.approx(0.8)
    assert dial.scores["ua"][1].mean == pytest.approx(0.25)
    assert (dial.finite, dial.runs, dial.sets, dial.others) == (1, 6, 2, {})


def test_diverged_runs_are_left_out_of_the_curve_and_counted(record: Build) -> None:
    dial = only(dials([line(record, {0: 0.0, 0.5: None, 1: 1.0})]))
    assert dial.finite == pytest.approx(2 / 3)
    assert dial.diverged == (0, 1, 0)
    assert dial.rho.mean == pytest.approx(1)
    assert dial.largest_jump == 1
    assert dial.scores["ua"][1] is None


def test_each_learning_rate_is_a_dial_of_its_own(record: Build) -> None:
    rates = [point for lr in (0.1, 0.01) for point in line(record, {0: 0.0, 0.5: lr, 1: 1.0}, lr=lr, epochs=5)]
    found = dials([rates])
    assert [dial.others for dial in found] == [{"lr": 0.01}, {"lr": 0.1}]
    assert [dial.scores["ua"][1].mean for dial in found] == [0.01, 0.1]


def test_a_level_line_has_no_rank_correlation(record: Build) -> None:
    dial = only(dials([line(record, {0: 0.5, 0.5: 0.5, 1: 0.5})]))
    assert dial.rho is None
    assert dial.largest_jump == 0


def test_what_is_no_dial(record: Build) -> None:
    assert dials([line(record, {0: 0.0, 1: 1.0})]) == []  # two values
    other = [record("run", knob=0.1 * i, settings={"gamma": 0.5, "lr": 0.1 * i}).point for i in range(4)]
    assert dials([other]) == []  # it walks along the learning rate
    assert dials([[record("run").point]]) == []


def test_all_diverged(record: Build) -> None:
    dial = only(dials([line(record, {0: None, 0.5: None, 1: None})]))
    assert (dial.finite, dial.rho, dial.jump, dial.largest_jump) == (0, None, None, None)
