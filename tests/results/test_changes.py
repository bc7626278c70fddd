from __future__ import annotations

from gradpivot.report.run.view import uphill_shares
from gradpivot.results.changes import really_changed
from gradpivot.sweep.work import telemetry

HISTORY = {
    "step": [0, 1, 2, 3, 4],
    "delta_forget": [1.0] * 5,
    "delta_retain": [1.0] * 5,
    "forget_change": [-1.0, 0.5, 0.5, 1e-9, 3.0],
    "retain_change": [-0.1, 0.1, -0.1, 1e-9, 3.0],
    "taken_back": [0.0, 0.0, 0.0, 0.0, 1.0],
    "intensity": [0.5, 0.5, -0.1, 0.0, 0.5],
}


def test_only_steps_that_stayed_count_and_rounding_and_giving_back_do_not():
    assert really_changed(HISTORY) == ([-1.0, 0.5, 0.0, 0.0], [-0.1, 0.1, -0.1, 0.0])


def test_the_page_and_the_store_tell_what_really_rose():
    assert uphill_shares(HISTORY) == {"forget": 0.25, "retain": 0.25, "either": 0.25, "steps": 4}
    told = telemetry(HISTORY)
    assert (told["rose_forget"], told["rose_retain"], told["taken_back"]) == (0.25, 0.25, 0.2)
    assert told["raised_forget"] == 1


def test_a_run_that_did_not_look_has_the_first_order():
    first = {name: HISTORY[name] for name in ("step", "delta_forget", "delta_retain")}
    assert uphill_shares(first) == {"forget": 1, "retain": 1, "either": 1, "steps": 5}
    assert "rose_forget" not in telemetry(first)
