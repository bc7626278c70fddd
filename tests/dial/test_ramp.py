from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from gradpivot.dial.ramp import Ramp, gamma_for, target_degree
from gradpivot.dial.settings import DialSettings

shares = st.floats(0, 1)
losses = st.floats(0, 50)
USE = DialSettings()


@given(shares)
def test_gamma_and_degree_are_inverse(gamma):
    assert gamma_for(target_degree(gamma)) == pytest.approx(gamma, abs=1e-7)


def test_the_scale_is_even_and_ends_where_it_should():
    degrees = [target_degree(g / 10) for g in range(11)]
    assert (degrees[0], degrees[-1]) == (0, 1)
    assert all(0 < b - a < 0.16 for a, b in pairwise(degrees))
    assert degrees[9] > 0.98


@given(start=shares, asked=shares, seen=st.lists(st.tuples(shares, shares, st.integers(1, 512), losses), min_size=1))
def test_the_intensity_stays_in_its_bounds(start, asked, seen):
    ramp = Ramp(start, asked, 0.5)
    for progress, degree, samples, retain in seen:
        assert USE.min_intensity <= ramp.intensity(progress, degree, samples, retain) <= USE.max_intensity
        assert 0 <= ramp.evidence <= 1


def test_it_pushes_while_behind_holds_when_there_and_gives_back_beyond():
    def after(degree: float) -> float:
        ramp = Ramp(0.0, 0.5, 0.01)
        for _ in range(50):
            intensity = ramp.intensity(1.0, degree, 64, 0.01)
        return intensity

    assert after(0.0) == USE.max_intensity
    assert after(0.5) == pytest.approx(0)
    assert USE.min_intensity <= after(0.55) < 0


def test_a_run_on_its_ramp_has_no_lag_however_slow_the_average():
    ramp = Ramp(0.0, 1.0, 0.01)
    for step in range(40):
        progress = step / 40
        ramp.intensity(progress, ramp.target(progress), 1, 0.01)
    assert ramp.behind == pytest.approx(0, abs=1e-12)


def test_it_repairs_before_it_forgets_more():
    ramp = Ramp(0.0, 1.0, 0.01)
    ramp.intensity(0.0, 0.0, 128, 0.01)
    for _ in range(20):
        intensity = ramp.intensity(USE.ramp, 0.0, 128, 0.02 + USE.repair_above)
    assert ramp.needs_repair
    assert intensity == USE.repair_intensity


def test_one_easy_batch_makes_the_others_no_damage():
    ramp = Ramp(0.0, 1.0, 0.75)
    for loss in (0.1, *[0.75] * 20):
        ramp.intensity(USE.ramp, 0.0, 8, loss)
        assert not ramp.needs_repair


def test_a_ramp_continues_from_its_state():
    seen = [(i / 20, i / 25, 16, 0.1 + i / 100) for i in range(20)]
    whole, first = Ramp(0.1, 0.9, 0.1), Ramp(0.1, 0.9, 0.1)
    for one in seen:
        whole.intensity(*one)
    for one in seen[:10]:
        first.intensity(*one)
    second = Ramp(0.1, 0.9, 0.1)
    second.load_state_dict(first.state_dict())
    for one in seen[10:]:
        second.intensity(*one)
    assert second == whole


def test_steps_become_calm_after_the_ramp():
    assert Ramp(0.0, 1.0, 0.0).rate(0) == Ramp(0.0, 1.0, 0.0).rate(USE.ramp) == 1
    assert Ramp(0.0, 1.0, 0.0).rate(1) == pytest.approx(0.1)
