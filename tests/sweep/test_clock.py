"""How long a sweep still takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gradpivot.sweep import clock as clocks
from gradpivot.sweep.cell import cells_of
from gradpivot.sweep.clock import Clock
from gradpivot.sweep.engines.job import Pace


def test_time_left_is_the_mean_of_the_series_over_the_workers(lab, monkeypatch):
    lab.sweep()
    records = lab.store().records()
    now = 100.0
    monkeypatch.setattr(clocks.time, "monotonic", lambda: now)

    class Two(lab.Inline):
        def workers(self):
            return 2

    clock = Clock(Two())
    assert clock.left({}) is None
    run = next(r for r in records if r.series == "CUP")
    timing = {"timing": {"unlearning": 3.0, "evaluation": 0.5, "total": 4.0}}
    clock.count(replace(run, provenance=timing), 4.0)
    cells = {str(number): cell_of(lab, "CUP") for number in range(6)}
    assert clock.left(cells) == pytest.approx(6 * 4 / 2)
    assert clock.useful == pytest.approx(3.5 / 4)
    # The workers were busy half of the time, so the rest takes twice as long.
    clock.busy_seconds = 4.0
    now += 4.0
    clock.tick()
    assert clock.busy == pytest.approx(0.5)
    assert clock.left(cells) == pytest.approx(24)
    # A resumed run brings the seconds from before; shares stay shares.
    clock.count(replace(run, provenance={"timing": {"unlearning": 50.0, "total": 1.0}}), 1.0)
    assert clock.useful <= 1


def test_originals_to_train_add_to_the_time_left(lab, monkeypatch):
    monkeypatch.setattr(clocks.time, "monotonic", lambda: 100.0)

    class Training(lab.Inline):
        def under_way(self):
            return {"shadow": Pace(0.0, 0.5, 3.0)}

    lab.sweep()
    clock = Clock(Training())
    run = next(record for record in lab.store().records() if record.series == "CUP")
    clock.count(replace(run, provenance={"timing": {"unlearning": 3.0, "total": 4.0}}), 4.0)
    clock.count_training(5.0)
    clock.count_training(7.0)
    cells = {"0": cell_of(lab, "CUP")}
    assert clock.left(cells, ["shadow"]) == pytest.approx(4 + 3)
    assert clock.left(cells, ["shadow", "other", "third"]) == pytest.approx(4 + 3 + 2 * 6)


def test_before_the_first_run_ends_the_pace_of_those_under_way_tells_the_time_left(lab, monkeypatch):
    paces = {}

    class Two(lab.Inline):
        def workers(self):
            return 2

        def under_way(self):
            return paces

    clock = Clock(Two())
    cells = {str(number): cell_of(lab, "CUP") for number in range(6)}
    assert clock.left(cells) is None
    # A quarter of it in 10 seconds: 40 in all. Resumed at a half, two thirds of the rest in 20: 60 in all.
    paces |= {"0": Pace(0.0, 0.25, 10.0), "1": Pace(0.5, 0.5 + 1 / 3, 20.0), "other": Pace(0.0, 0.0, 5.0)}
    assert clock.left(cells) == pytest.approx((4 * 50 + 30 + 10) / 2)
    # A finished run knows better than a pace.
    run = next(r for r in (lab.sweep(), lab.store().records())[1] if r.series == "CUP")
    timing = {"timing": {"unlearning": 3.0, "evaluation": 1.0, "total": 4.0}}
    clock.count(replace(run, provenance=timing), 4.0)
    assert clock.left(cells) == pytest.approx((4 * 4 + 30 + 10) / 2)


def cell_of(lab, series):
    return next(c for c in cells_of(lab.recipe, lab.setting) if c.series == series)


def test_a_reference_does_not_tell_how_long_runs_take(lab, monkeypatch):
    """Retraining takes as long as many runs: without a finished run there is no estimate."""
    now = 0.0
    monkeypatch.setattr(clocks.time, "monotonic", lambda: now)
    paces = {}

    class One(lab.Inline):
        def under_way(self):
            return paces

    clock = Clock(One())
    cells = {"0": cell_of(lab, "Retrain")} | {str(n): cell_of(lab, "CUP") for n in range(1, 6)}
    paces["0"] = Pace(0.0, 0.5, 1200.0)
    assert clock.left(cells) is None
    # Alone it is at its own pace; with a run under way the others are at that run's.
    assert clock.left({"0": cells["0"]}) == pytest.approx(1200)
    paces["1"] = Pace(0.0, 0.5, 10.0)
    assert clock.left(cells) == pytest.approx(1200 + 10 + 4 * 20)


def test_runs_under_way_are_no_overhead(lab, monkeypatch):
    """Two workers at 90 % of their first runs, half an hour in: three minutes are left, not half an hour."""
    now = 0.0
    monkeypatch.setattr(clocks.time, "monotonic", lambda: now)

    class Two(lab.Inline):
        def workers(self):
            return 2

        def under_way(self):
            return {"0": Pace(0.0, 0.9, 1350.0), "1": Pace(0.0, 0.9, 1350.0)}

    clock = Clock(Two())
    clock.busy_seconds = 60.0
    now = 1410.0
    clock.tick()
    assert clock.left({str(n): cell_of(lab, "CUP") for n in range(2)}) == pytest.approx(150, rel=0.05)
