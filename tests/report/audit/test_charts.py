"""Data of the charts."""

from __future__ import annotations

import math

import pytest

from gradpivot.report.audit.charts import MAX_CLASSES, audit_payload, class_chart, curve_charts, roc_charts, roc_floor
from made_audit import attack, made_audit, roc


def with_details(unit: str = "%", **details: object) -> list:
    return [attack("a", "An attack", "membership", 0.5, 0.5, unit=unit, details=details)]


def test_every_finding_with_data_gets_a_chart() -> None:
    data = audit_payload(made_audit())
    titles = [chart["title"] for chart in data["rocs"]]
    assert titles == ["Loss attack, AUC", "Scaled-margin attack, AUC", "Entropy attack, AUC"]
    assert [chart["x"] for chart in data["curves"]] == ["Fine-tuning steps on retained data", "Bits per weight"]
    assert [series["role"] for series in data["rocs"][0]["series"]] == ["audited", "retrained", "original"]


def test_rates_of_zero_are_drawn_at_the_floor() -> None:
    (chart,) = roc_charts(with_details(roc={"audited": roc(1.0, 160), "retrained": None}))
    assert chart["floor"] == pytest.approx(1e-3)
    (series,) = chart["series"]
    assert (series["x"][0], series["y"][0]) == pytest.approx((1e-3, 1e-3))
    assert (series["x"][-1], series["y"][-1]) == (1, 1)


@pytest.mark.parametrize(
    ("points", "floor"),
    [([(0.0, 0.0)], 0.1), ([(0.5, 1.0)], 0.1), ([(0.0, 0.01)], 0.01), ([(0.009, 1)], 1e-3), ([(1e-9, 1)], 1e-4)],
)
def test_the_floor_is_a_power_of_ten(points: list[tuple[float, float]], floor: float) -> None:
    assert roc_floor(points) == pytest.approx(floor)


def test_curves_are_in_percent_and_skip_what_is_not_finite() -> None:
    curve = {"x": [0, 10, 20], "x_label": "Steps", "audited": [0.1, math.nan, 0.3], "retrained": None}
    (chart,) = curve_charts(with_details(curve=curve))
    assert chart["series"] == [{"role": "audited", "x": [0, 20], "y": [10, 30]}]
    assert chart["y"] == "%"
    (plain,) = curve_charts(with_details("nats", curve=curve))
    assert plain["series"][0]["y"] == [0.1, 0.3]


def test_many_classes_are_cut_to_the_largest() -> None:
    shares = [1 / (1 + i) for i in range(100)]
    chart = class_chart({"classes": list(range(100)), "audited": shares[::-1], "retrained": None, "original": shares})
    assert chart is not None
    assert chart["total"] == 100
    assert len(chart["classes"]) == MAX_CLASSES
    assert {"0", "99"} <= set(chart["classes"])
    assert [series["role"] for series in chart["series"]] == ["audited", "original"]


@pytest.mark.parametrize("shares", [None, {}, {"classes": []}, {"classes": ["a"]}, {"classes": ["a"], "audited": None}])
def test_no_shares_no_chart(shares: dict | None) -> None:
    assert class_chart(shares) is None
