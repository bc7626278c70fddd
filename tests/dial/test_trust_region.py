from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from gradpivot.dial.settings import DialSettings
from gradpivot.dial.trust_region import Change, TrustRegion

USE = DialSettings()


def flat(loss: float = 1.0) -> Change:
    return Change(loss, loss, 0.0)


def test_a_harmless_step_stays_and_the_next_one_is_longer_if_wanted():
    region = TrustRegion()
    assert region.accept(Change(5.0, 4.9, -0.1), flat(), 1.0, grow=False)
    assert region.rate == 1
    assert region.accept(Change(5.0, 4.9, -0.1), flat(), 1.0, grow=True)
    assert region.rate == 1.5


@given(unit=st.floats(1e-3, 1e3), rise=st.floats(-1, 1), fall=st.floats(-1, 1))
def test_the_verdict_does_not_depend_on_the_unit_of_the_losses(unit, rise, fall):
    forget, retain = Change(2.0, 2.0 + fall, fall / 2), Change(0.1, 0.1 + rise, 0.0)
    plain, scaled = TrustRegion(), TrustRegion(unit=unit)
    larger = [Change(*(value * unit for value in change)) for change in (forget, retain)]
    same = plain.accept(forget, retain, 1.0, grow=True) == scaled.accept(*larger, 1.0, grow=True)
    # At a bound rounding decides.
    assert (same and scaled.rate == pytest.approx(plain.rate)) or min(abs(abs(rise) - 0.1), abs(abs(fall) - 0.7)) < 1e-6


@given(rise=st.floats(2.01, 1e6))
def test_a_step_that_raises_what_is_kept_too_much_is_taken_back_and_shortened(rise):
    region = TrustRegion()
    assert not region.accept(flat(), Change(0.1, 0.1 + rise * USE.retain_tolerance, 0.0), 1.0, grow=True)
    assert region.rate <= 0.5


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_taken_back(bad):
    for changes in ((Change(1.0, bad, 0.0), flat()), (flat(), Change(1.0, bad, 0.0))):
        region = TrustRegion()
        assert not region.accept(*changes, 1.0, grow=True)
        assert region.rate < 0.1


def test_a_step_beyond_what_the_gradient_sees_is_shortened_though_both_losses_fell():
    region = TrustRegion()
    assert region.accept(flat(), Change(3.0, 2.9, -2.0), 1.0, grow=True)
    assert region.rate < 1


@given(st.lists(st.tuples(*[st.floats(0, 20)] * 4, st.floats(-5, 5), st.floats(-5, 5), st.booleans()), max_size=30))
def test_the_rate_stays_positive_and_finite(steps):
    region = TrustRegion()
    for fb, fa, rb, ra, pf, pr, grow in steps:
        region.accept(Change(fb, fa, pf), Change(rb, ra, pr), 1.0, grow=grow)
        assert 0 < region.rate < math.inf


@pytest.mark.parametrize(("after", "grow"), [(math.nan, False), (9.0, False), (1.0, True)])
def test_also_after_a_thousand_bad_or_good_ones(after, grow):
    region = TrustRegion()
    for _ in range(1000):
        region.accept(Change(1.0, after, 0.0), flat(), 1.0, grow=grow)
    assert 0 < 1 / region.rate < math.inf


def test_steps_of_a_long_run_may_change_less_each():
    assert TrustRegion.for_run(1, 1.0).share == TrustRegion.for_run(USE.reference_steps, 1.0).share == 1
    short, long = (TrustRegion.for_run(steps, 1.0) for steps in (USE.reference_steps, 10 * USE.reference_steps))
    for region in (short, long):
        region.accept(Change(1.0, 0.9, -0.1), flat(), 1.0, grow=True)
    assert short.rate >= 1
    assert long.rate < 1
    # What all of them may change together does not depend on how many there are.
    assert 10 * USE.reference_steps * long.share == pytest.approx(USE.reference_steps * short.share)


def predicted(forget: float, retain: float) -> tuple[Change, Change]:
    return Change(5.0, math.nan, forget), Change(0.1, math.nan, retain)


def checked(**changed: Any) -> TrustRegion:
    """A region whose last step, of length 1, went as predicted but for a tenth of what is allowed."""
    region = TrustRegion(**changed)
    allowed = USE.retain_tolerance + USE.curvature * 0.1
    region.accept(Change(5.0, 4.9 + allowed / 10, -0.1), flat(0.1), 1.0, grow=False)
    return region


def test_the_first_step_is_checked():
    assert not TrustRegion().trust(*predicted(-1e-6, 0.0), 1e-6, grow=False)
    assert not TrustRegion().trust(*predicted(0.0, 0.0), 0.0, grow=False)


def test_small_steps_are_trusted_between_checks_and_may_grow():
    region = checked()
    assert [region.trust(*predicted(-0.01, 0.0), 0.1, grow=True) for _ in range(USE.check_every + 1)] == (
        [True] * USE.check_every + [False]
    )
    assert region.rate == pytest.approx(USE.growth**USE.check_every)


@pytest.mark.parametrize(
    ("forget", "retain", "length"),
    [(-1.0, 0.0, 1.0), (1.0, 0.0, 1.0), (0.0, USE.retain_tolerance, 1.0), (0.0, 0.0, 3.0)],
    ids=["forgets much", "remembers much", "harms", "is long and bent"],
)
def test_a_step_that_could_leave_its_bounds_is_checked(forget, retain, length):
    region = checked()
    assert region.trust(*predicted(0.0, 0.0), 1.0, grow=False)
    assert not region.trust(*predicted(forget, retain), length, grow=False)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_prediction_that_is_no_number_is_checked(bad):
    for changes in (predicted(bad, 0.0), predicted(0.0, bad)):
        assert not checked().trust(*changes, 1.0, grow=False)


def test_after_a_loss_that_is_no_number_the_next_step_is_checked():
    region = checked()
    region.accept(Change(1.0, math.nan, 0.0), flat(), 1.0, grow=False)
    assert not region.trust(*predicted(0.0, 0.0), 1e-3, grow=False)


def test_a_step_that_forgets_more_than_its_bound_is_trusted_and_shortens_the_next_one():
    bound = USE.forget_reach + 2.0 * USE.forget_reach_share
    for length, trusted in ((1e-3, True), (1.0, False)):
        region = TrustRegion(curvature=0.4)
        assert region.trust(Change(2.0, math.nan, -1.25 * bound), flat(), length, grow=True) is trusted
        assert region.rate == pytest.approx(0.8 if trusted else 1.0)
    assert not TrustRegion(curvature=0.0).trust(Change(2.0, math.nan, -1.6 * bound), flat(), 1.0, grow=True)


def test_its_state_is_restored():
    region, other = checked(), TrustRegion()
    region.trust(*predicted(-0.01, 0.0), 0.1, grow=True)
    other.load_state_dict(region.state_dict())
    assert other == region
