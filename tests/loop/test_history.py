from __future__ import annotations

import math

from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.weighting import Weights
from gradpivot.loop.gradients import Gradients
from gradpivot.loop.history import History, finite, make_row


def test_rows_become_columns():
    history = History()
    assert (len(history), history.last, history.columns()) == (0, None, {})
    for step in range(3):
        history.add({"step": step})
        history.add_to_last({"degree": step / 2})
    assert history.columns() == {"step": [0, 1, 2], "degree": [0, 0.5, 1]}
    assert history.column("degree") == [0, 0.5, 1]
    assert history.last == {"step": 2, "degree": 1}


def test_goes_on_after_what_an_interrupted_run_has_recorded():
    history = History([{"step": 0}])
    history.add({"step": 1})
    assert history.column("step") == [0, 1]


def test_a_row_of_one_loss_has_no_angle_and_is_not_stationary():
    row = make_row(3, Gradients([], [], Gram(0, 4, 0), None, 0.5), Weights(0.0, 1.0), 2.0)
    assert (row["step"], row["cosine"], row["phi"]) == (3, None, None)
    assert (row["forget_loss"], row["retain_loss"], row["retain_norm"]) == (None, 0.5, 2.0)
    assert row["pareto_stationary"] is False
    assert row["delta_forget"] is None


def test_what_is_not_finite_is_none():
    assert [finite(value) for value in (1.5, math.nan, math.inf)] == [1.5, None, None]
