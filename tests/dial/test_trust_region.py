from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from gradpivot.dial.settings import DialSettings
from gradpivot.dial.trust_region import Change, TrustRegion

USE = DialSettings()


def flat(loss: float = 1.0) -> Change:
    return Change(loss, loss, 0.0)


def test_a_harmless_step_stays_and_the_next_one_is_longer_if_wanted():
    region = TrustRegion()
    assert region.accept(Change(5.0, 4.9, -0.1), flat(), grow=False)
    assert region.rate == 1
    assert region.accept(Change(5.0, 4.9, -0.1), flat(), grow=True)
    assert region.rate == 1.5


@given(unit=st.floats(1e-3, 1e3), rise=st.floats(-1, 1), fall=st.floats(-1, 1))
def test_the_verdict_does_not_depend_on_the_unit_of_the_losses(unit, rise, fall):
    forget, retain = Change(2.0, 2.0 + fall, fall / 2), Change(0.1, 0.1 + rise, 0.0)
    plain, scaled = TrustRegion(), TrustRegion(unit=unit)
    larger = [Change(*(value * unit for value in change)) for change in (forget, retain)]
    same = plain.accept(forget, retain, grow=True) == scaled.accept(*larger, grow=True)
    # At a bound rounding decides.
    assert (same and scaled.rate == pytest.approx(plain.rate)) or min(abs(abs(rise) - 0.1), abs(abs(fall) - 0.7)) < 1e-6


@given(rise=st.floats(2.01, 1e6))
def test_a_step_that_raises_what_is_kept_too_much_is_taken_back_and_shortened(rise):
    region = TrustRegion()
    assert not region.accept(flat(), Change(0.1, 0.1 + rise * USE.retain_tolerance, 0.0), grow=True)
    assert region.rate <= 0.5


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_taken_back(bad):
    for changes in ((Change(1.0, bad, 0.0), flat()), (flat(), Change(1.0, bad, 0.0))):
        region = TrustRegion()
        assert not region.accept(*changes, grow=True)
        assert region.rate < 0.1


def test_a_step_beyond_what_the_gradient_sees_is_shortened_though_both_losses_fell():
    region = TrustRegion()
    assert region.accept(flat(), Change(3.0, 2.9, -2.0), grow=True)
    assert region.rate < 1


@given(st.lists(st.tuples(*[st.floats(0, 20)] * 4, st.floats(-5, 5), st.floats(-5, 5), st.booleans()), max_size=30))
def test_the_rate_stays_positive_and_finite(steps):
    region = TrustRegion()
    for fb, fa, rb, ra, pf, pr, grow in steps:
        region.accept(Change(fb, fa, pf), Change(rb, ra, pr), grow=grow)
        assert 0 < region.rate < math.inf


@pytest.mark.parametrize(("after", "grow"), [(math.nan, False), (9.0, False), (1.0, True)])
def test_also_after_a_thousand_bad_or_good_ones(after, grow):
    region = TrustRegion()
    for _ in range(1000):
        region.accept(Change(1.0, after, 0.0), flat(), grow=grow)
    assert 0 < 1 / region.rate < math.inf


def test_steps_of_a_long_run_may_change_less_each():
    assert TrustRegion.for_run(1, 1.0).share == TrustRegion.for_run(USE.reference_steps, 1.0).share == 1
    short, long = (TrustRegion.for_run(steps, 1.0) for steps in (USE.reference_steps, 10 * USE.reference_steps))
    for region in (short, long):
        region.accept(Change(1.0, 0.9, -0.1), flat(), grow=True)
    assert short.rate >= 1
    assert long.rate < 1
    # What all of them may change together does not depend on how many there are.
    assert 10 * USE.reference_steps * long.share == pytest.approx(USE.reference_steps * short.share)
