from __future__ import annotations

import pytest
from hypothesis import example, given, strategies as st

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.metrics.registry import steering_metrics
from gradpivot.results.selection import Condition, parse_conditions
from gradpivot.targets.conditions import Seen, Targets, shortfall, worst

PERCENT = st.integers(0, 100)
COMPARISON = st.sampled_from([">=", "<=", ">", "<"])


def test_both_forms_say_the_same():
    typed = Targets.read("UA>=95, AUC<=60", "RA>=99 and TA>97")
    assert Targets.read({"ua": 0.95, "auc": 0.6}).until == typed.until
    assert str(typed) == "UA>=95, AUC<=60 with RA>=99, TA>97"
    assert typed.metrics_until == {"ua", "auc"}
    assert typed.metrics_keep == {"ra", "ta"}


def test_attacks_may_be_asked_for():
    assert Targets.read("MARGIN_AUC<=55, RELEARN<=20").until == Targets.read({"margin_auc": 0.55, "relearn": 0.2}).until
    assert str(Targets.read("rmia<=60")) == "RMIA<=60"


def test_only_a_lower_bound_on_ua_tells_the_degree():
    assert Targets.read("UA>=95, UA>90").asked_ua() == 0.95
    assert Targets.read("UA>=95, MIA>=90").asked_ua() is None
    assert Targets.read("UA<=20").asked_ua() is None
    assert Targets.read("AUC<=60").may_overshoot
    assert not Targets.read("UA>=95, MIA>=90").may_overshoot


@pytest.mark.parametrize(
    ("until", "keep", "message"),
    [
        ("UA>=120", None, "between 0 and 100"),
        ("SPEED>=3", None, "Choose from RA, UA, TA, MIA, AUC"),
        ("", None, "until is empty"),
        (None, "RA>=99", "until is empty"),
        ({}, None, "until is empty"),
        ("UA>=95", "UA<90", "UA>=95 and UA<90 exclude each other"),
        ("UA>=95", "UA<95", "exclude each other"),
        ("UA>100", None, "no model can meet UA>100"),
        ("MARGIN_AUC<=40", None, "MARGIN-AUC is between 50 and 100 %"),
        ("AUC<=40", None, "AUC is between 50 and 100 %"),
        ("AUC>=60", None, "write AUC<=60"),
        ("UA>=9.5.1", None, "cannot read the condition"),
        ({"ua": "much"}, None, "pass a fraction"),
        ({"ua": None}, None, "pass a fraction"),
        ({"ua": float("nan")}, None, "between 0 and 100"),
    ],
)
def test_what_cannot_be_asked_for(until, keep, message):
    with pytest.raises(GradPivotError, match=message) as error:
        Targets.read(until, keep)
    assert "\n" not in str(error.value)


def test_a_window_may_be_asked_for():
    assert len(Targets.read("UA>=95", "UA<=97").keep) == 1
    assert len(Targets.read("UA>=95", "UA<=95").keep) == 1


@example([("<", 1), ("<=", 0)])
@given(st.lists(st.tuples(COMPARISON, PERCENT), min_size=1, max_size=4))
def test_conditions_exclude_each_other_if_no_value_meets_them(asked):
    text = ", ".join(f"UA{comparison}{bound}" for comparison, bound in asked)
    conditions = parse_conditions(text)
    # Bounds are whole percents: between them halves tell.
    possible = any(all(c.holds(Seen(ua=i / 200)) for c in conditions) for i in range(201))
    try:
        Targets.read(text)
    except GradPivotError:
        assert not possible
    else:
        assert possible


@given(COMPARISON, PERCENT, st.floats(0, 1))
def test_the_shortfall_is_positive_only_where_a_condition_fails(comparison, bound, value):
    condition, seen = Condition("ua", comparison, bound / 100), Seen(ua=value)
    if shortfall(condition, seen) > 1e-9:
        assert not condition.holds(seen)
    if shortfall(condition, seen) < -1e-9:
        assert condition.holds(seen)


def test_the_worst_condition_is_the_one_that_fails_by_most():
    conditions = parse_conditions("RA>=99, TA>=97, UA<=50")
    assert str(worst(conditions, Seen(ra=0.98, ta=0.9, ua=0.5))) == "TA>=97"
    assert worst(conditions, Seen(ra=0.99, ta=0.97, ua=0.1)) is None


def test_what_is_seen_is_put_together():
    seen = Seen(ua=0.5).with_more(Seen(ra=0.9))
    assert seen.to_dict() == {"ra": 0.9, "ua": 0.5}
    assert set(Seen.of_nothing().to_dict()) == set(steering_metrics())
