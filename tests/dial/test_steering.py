from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from gradpivot.dial.steering import (
    HARDEST,
    LONG_RUN,
    LOSS_BUDGET,
    RAMP,
    REPAIR,
    RETAIN_TOLERANCE,
    SOFTEST,
    Change,
    Course,
    StepLength,
    asked_degree,
    gamma_for,
)

shares = st.floats(0, 1)
losses = st.floats(0, 50)


@given(shares)
def test_gamma_and_degree_are_inverse(gamma):
    assert gamma_for(asked_degree(gamma)) == pytest.approx(gamma, abs=1e-7)


def test_the_scale_is_even_and_ends_where_it_should():
    degrees = [asked_degree(g / 10) for g in range(11)]
    assert (degrees[0], degrees[-1]) == (0, 1)
    assert all(0 < b - a < 0.16 for a, b in pairwise(degrees))
    assert degrees[9] > 0.98


@given(
    start=shares,
    asked=shares,
    seen=st.lists(st.tuples(shares, shares, st.integers(1, 512), losses), min_size=1),
)
def test_the_intensity_stays_in_its_bounds(start, asked, seen):
    course = Course(start, asked, 0.5)
    for progress, degree, samples, retain in seen:
        assert SOFTEST <= course.intensity(progress, degree, samples, retain) <= HARDEST
        assert 0 <= course.evidence <= 1


def test_it_pushes_while_behind_holds_when_there_and_gives_back_beyond():
    def after(degree: float) -> float:
        course = Course(0.0, 0.5, 0.01)
        for _ in range(50):
            intensity = course.intensity(1.0, degree, 64, 0.01)
        return intensity

    assert after(0.0) == HARDEST
    assert after(0.5) == pytest.approx(0)
    assert SOFTEST <= after(0.55) < 0


def test_a_run_on_its_course_has_no_lag_however_slow_the_average():
    course = Course(0.0, 1.0, 0.01)
    for step in range(40):
        progress = step / 40
        course.intensity(progress, course.by_now(progress), 1, 0.01)
    assert course.behind == pytest.approx(0, abs=1e-12)


def test_it_repairs_before_it_forgets_more():
    course = Course(0.0, 1.0, 0.01)
    course.intensity(0.0, 0.0, 128, 0.01)
    for _ in range(20):
        intensity = course.intensity(RAMP, 0.0, 128, 0.02 + LOSS_BUDGET)
    assert course.is_hurt
    assert intensity == REPAIR


def test_one_easy_batch_makes_the_others_no_damage():
    course = Course(0.0, 1.0, 0.75)
    for loss in (0.1, *[0.75] * 20):
        course.intensity(RAMP, 0.0, 8, loss)
        assert not course.is_hurt


def test_a_course_continues_from_what_the_history_keeps():
    seen = [(i / 20, i / 25, 16, 0.1 + i / 100) for i in range(20)]
    whole, first = Course(0.1, 0.9, 0.1), Course(0.1, 0.9, 0.1)
    for one in seen:
        whole.intensity(*one)
    for one in seen[:10]:
        first.intensity(*one)
    second = Course(0.1, 0.9, 0.1)
    second.resume(first.columns())
    for one in seen[10:]:
        second.intensity(*one)
    assert second == whole


def test_steps_become_calm_after_the_ramp():
    assert Course.calm(0) == Course.calm(RAMP) == 1
    assert Course.calm(1) == pytest.approx(0.1)


def flat(loss: float = 1.0) -> Change:
    return Change(loss, loss, 0.0)


def test_a_harmless_step_stays_and_the_next_one_is_longer_if_wanted():
    length = StepLength()
    assert length.judge(Change(5.0, 4.9, -0.1), flat(), grow=False)
    assert length.rate == 1
    assert length.judge(Change(5.0, 4.9, -0.1), flat(), grow=True)
    assert length.rate == 1.5


@given(unit=st.floats(1e-3, 1e3), rise=st.floats(-1, 1), fall=st.floats(-1, 1))
def test_the_verdict_does_not_depend_on_the_unit_of_the_losses(unit, rise, fall):
    forget, retain = Change(2.0, 2.0 + fall, fall / 2), Change(0.1, 0.1 + rise, 0.0)
    plain, scaled = StepLength(), StepLength(unit=unit)
    larger = [Change(*(value * unit for value in change)) for change in (forget, retain)]
    same = plain.judge(forget, retain, grow=True) == scaled.judge(*larger, grow=True)
    # At a bound rounding decides.
    assert (same and scaled.rate == pytest.approx(plain.rate)) or min(
        abs(abs(rise) - 0.1), abs(abs(fall) - 0.7)
    ) < 1e-6


@given(rise=st.floats(2.01, 1e6))
def test_a_step_that_raises_what_is_kept_too_much_is_taken_back_and_shortened(rise):
    length = StepLength()
    assert not length.judge(flat(), Change(0.1, 0.1 + rise * RETAIN_TOLERANCE, 0.0), grow=True)
    assert length.rate <= 0.5


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_taken_back(bad):
    for changes in ((Change(1.0, bad, 0.0), flat()), (flat(), Change(1.0, bad, 0.0))):
        length = StepLength()
        assert not length.judge(*changes, grow=True)
        assert length.rate < 0.1


def test_a_step_beyond_what_the_gradient_sees_is_shortened_though_both_losses_fell():
    length = StepLength()
    assert length.judge(flat(), Change(3.0, 2.9, -2.0), grow=True)
    assert length.rate < 1


@given(
    st.lists(
        st.tuples(*[st.floats(0, 20)] * 4, st.floats(-5, 5), st.floats(-5, 5), st.booleans()), max_size=30
    )
)
def test_the_rate_stays_positive_and_finite(steps):
    length = StepLength()
    for fb, fa, rb, ra, pf, pr, grow in steps:
        length.judge(Change(fb, fa, pf), Change(rb, ra, pr), grow=grow)
        assert 0 < length.rate < math.inf


@pytest.mark.parametrize(("after", "grow"), [(math.nan, False), (9.0, False), (1.0, True)])
def test_also_after_a_thousand_bad_or_good_ones(after, grow):
    length = StepLength()
    for _ in range(1000):
        length.judge(Change(1.0, after, 0.0), flat(), grow=grow)
    assert 0 < 1 / length.rate < math.inf


def test_steps_of_a_long_run_may_change_less_each():
    assert StepLength.of_run(1, 1.0).share == StepLength.of_run(LONG_RUN, 1.0).share == 1
    short, long = (StepLength.of_run(steps, 1.0) for steps in (LONG_RUN, 10 * LONG_RUN))
    for length in (short, long):
        length.judge(Change(1.0, 0.9, -0.1), flat(), grow=True)
    assert short.rate >= 1
    assert long.rate < 1
    # What all of them may change together does not depend on how many there are.
    assert 10 * LONG_RUN * long.share == pytest.approx(LONG_RUN * short.share)
