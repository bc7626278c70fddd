"""The standings' page: parts, size with many runs, and its behaviour in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradpivot.report.common import markup
from gradpivot.report.common.markup import write_html
from gradpivot.report.standings import page as standings_page
from gradpivot.report.standings.files import STANDINGS
from gradpivot.report.standings.page import standings_payload
from gradpivot.results._standings import Standings, standings
from gradpivot.results.record import Record

Build = Callable[..., Record]
Open = Callable[..., Any]
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def found(sweep: list[Record]) -> Standings:
    return standings(sweep)


def own(text: str) -> str:
    """The page without the vendored library."""
    return text.replace(markup.read_asset("common/vendor/plotly-basic.min.js"), "")


def test_the_page_has_its_parts(found: Standings) -> None:
    text = own(STANDINGS.page(found, "Ours"))
    assert "<title>Ours</title>" in text
    assert "digits, class-wise, paper protocol" in text
    assert "444 records · 2 tables" in text
    assert text.count('data-table="1"') == 2
    assert 'id="t0-methods" class="numbers"' in text
    assert "http://" not in re.sub(r"http://www.w3.org/2000/svg", "", text)
    assert "$" + "{" not in re.sub(r"<script>.*?</script>", "", text, flags=re.S)


def test_the_fragment_is_words_and_tables_only(found: Standings) -> None:
    text = STANDINGS.html(found)
    assert text.count("<section") == text.count("</section>") == 4
    assert "<script" not in text
    assert "<b>" in text
    assert "[red] &lt;i&gt;" in text


def test_the_payload_is_json_and_points_at_its_labels(found: Standings) -> None:
    told = json.loads(json.dumps(standings_payload(found), allow_nan=False))
    table = told["tables"][0]
    cup = next(series for series in table["series"] if series["name"] == "CUP")
    assert len(cup["runs"]["x"]) == 70
    assert table["labels"][cup["runs"]["label"][0]].startswith("CUP(")
    assert table["sets"][cup["runs"]["set"][0]] == "class 3, seed 0"
    assert (table["every"], cup["diverged"], len(table["dials"])) == (1, 2, 2)
    assert len(table["volumes"]["names"]) == 4


def test_a_table_of_records_has_its_own_metrics(record: Build) -> None:
    place = {"kind": "random", "forget": "10 %"}
    runs = [record("run"), record("retrained"), record("run", **place), record("retrained", **place)]
    told = standings_payload(standings(runs))
    assert [metric["key"] for metric in told["metrics"]] == ["ra", "ua", "ta", "mia"]
    by_class, records = told["tables"]
    assert (by_class["metrics"], records["metrics"]) == (["ra", "ua", "ta", "mia"], ["ra", "ua", "ta"])
    assert "mia" not in records["series"][0]["runs"]
    assert set(records["volumes"]) == {"names", "hypervolume"}


def test_many_runs_are_thinned_out_and_the_page_says_how(found: Standings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standings_page, "MAX_PLANE_POINTS", 50)
    table = standings_payload(found)["tables"][0]
    drawn = sum(len(series["runs"]["x"]) for series in table["series"])
    assert table["every"] == 5  # 214 finite runs
    assert 40 <= drawn <= 50
    whole = standings_payload(found)["tables"][0]["series"][0]["means"]
    assert len(whole["x"]) == 12


@pytest.fixture
def open_page(visit: Any, tmp_path: Path) -> Open:
    """Write and open standings."""
    return lambda told, **options: visit(write_html(tmp_path / "standings.html", STANDINGS.page(told)), **options)


def overflow(tab: Any) -> int:
    return tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def test_choosing_a_table_changes_words_tables_and_charts(open_page: Open, sweep: list[Record], until: Any) -> None:
    runs = [r for r in sweep if r.protocol != "clean" or r.series == "CUP"]
    tab = open_page(standings(runs))
    assert tab.locator("#lead-0").is_visible()
    assert tab.locator("#t0-methods").is_visible()
    assert not tab.locator("#t1-methods").is_visible()
    assert tab.locator("#legend button").count() == 3
    tab.locator("#table-select").focus()
    tab.keyboard.press("ArrowDown")
    until(tab, "document.querySelectorAll('#legend button').length === 1")
    assert tab.locator("#lead-1").is_visible()
    assert not tab.locator("#lead-0").is_visible()
    assert tab.evaluate("document.getElementById('volume-chart').data[0].y.length") == 2


def test_layers_views_and_legend(open_page: Open, found: Standings) -> None:
    tab = open_page(found)
    visible = lambda k: tab.evaluate(f"document.getElementById('plane-chart').data[{k}].visible")  # noqa: E731
    assert visible(0) is True
    tab.click("[data-layer=runs]")
    assert visible(0) is False
    assert tab.get_attribute("[data-layer=runs]", "aria-pressed") == "false"
    button = tab.locator("#legend button").nth(1)
    button.focus()
    tab.keyboard.press("Enter")
    assert visible(5) is False
    assert tab.evaluate("document.activeElement.textContent").startswith("CUP")
    tab.click("[data-view=whole]")
    assert tab.evaluate("document.getElementById('plane-chart').layout.xaxis.range") == [-3, 103]


def test_hovering_tells_the_setting_the_set_and_the_scores(open_page: Open, found: Standings) -> None:
    tab = open_page(found)
    text = tab.evaluate("document.getElementById('plane-chart').data[3].hovertext[0]")
    assert text.startswith("<b>CUP</b> class 3, seed 0<br>CUP(")
    assert "MIA" in text
    mean = tab.evaluate("document.getElementById('plane-chart').data[5].hovertext[0]")
    assert "mean of 6 runs" in mean


def test_a_dollar_sign_is_not_mathematics(open_page: Open, found: Standings) -> None:
    tab = open_page(found)
    ticks = tab.locator("#volume-chart .ytick text").all_text_contents()
    assert ticks == ["Retrain", "WS", "CUP", "_A_&_$B$ {50 %} [red]…"]


def test_the_dial_can_be_chosen(open_page: Open, found: Standings) -> None:
    tab = open_page(found)
    assert tab.locator("#dial-select option").all_inner_texts() == ["CUP, λ = 0.01", "CUP, λ = 0.1"]
    tab.select_option("#dial-select", "1")
    crosses = tab.evaluate("document.getElementById('dial-chart').data.at(-1).x")
    assert crosses == [1]


def test_tables_sort_by_the_number_a_cell_begins_with(open_page: Open, record: Build) -> None:
    h = {"A": 0.095, "B": 0.9, "C": 0.31}
    tab = open_page(standings([record("run", (v, 1, 1, 1), series=n) for n, v in h.items()]))
    head = tab.locator("#t0-methods thead th").nth(7)
    head.locator("button").click()
    assert tab.locator("#t0-methods tbody th").all_inner_texts() == ["A", "C", "B"]
    head.locator("button").focus()
    tab.keyboard.press("Enter")
    assert tab.locator("#t0-methods tbody th").all_inner_texts() == ["B", "C", "A"]
    assert tab.locator("#dial-figure").is_hidden()
    assert tab.locator("#chooser").is_hidden()


@pytest.mark.parametrize("width", [380, 900])
@pytest.mark.slow
def test_no_width_scrolls_sideways(open_page: Open, sweep: list[Record], record: Build, width: int) -> None:
    long = record("run", series="A_method_with_a_name_that_does_not_want_to_end_" * 2, protocol="paper")
    tab = open_page(standings([*sweep, long], beside="cifar10"), width=width)
    for summary in tab.locator("summary:visible").all():
        summary.click()
    assert overflow(tab) == 0


def test_paper_is_light_and_unfolded(open_page: Open, found: Standings) -> None:
    tab = open_page(found, color_scheme="dark")
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate("document.getElementById('plane-chart').layout.width") == 660
    assert tab.locator("details:not([open])").count() == 0
    tab.evaluate("window.dispatchEvent(new Event('afterprint'))")


def test_evil_text_is_only_text(open_page: Open, record: Build) -> None:
    place = {"problem": EVIL, "protocol": EVIL, "series": EVIL, "forget": EVIL}
    runs = [record("run", knob=g, settings={"gamma": g}, label=EVIL + str(g), **place) for g in (0, 0.5, 1)]
    tab = open_page(standings(runs))
    assert EVIL in tab.inner_text("#lead-0")
    assert tab.locator("img").count() == 0


def test_many_series_start_without_single_runs(open_page: Open, record: Build) -> None:
    tab = open_page(standings([record("run", series=f"M{i}") for i in range(12)]))
    assert tab.evaluate("document.getElementById('plane-chart').data[0].visible") is False
    assert tab.evaluate("document.getElementById('plane-chart').data[2].visible") is True


@pytest.mark.parametrize("kind", ["class", "random"])
@pytest.mark.slow
def test_missing_pieces_do_not_break_the_page(open_page: Open, record: Build, kind: str) -> None:
    runs = [record("run", None, kind=kind), record("run", None, kind=kind, series="WS", seed=1)]
    tab = open_page(standings(runs))
    assert tab.locator("#plane-chart .main-svg").count() > 0
