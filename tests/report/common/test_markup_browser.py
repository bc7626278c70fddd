"""The page in a browser: it opens from a file, asks for nothing, and the slider moves everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradpivot.evaluate.scores import Scores
from gradpivot.report.run.page import write_page
from gradpivot.results.comparison import Comparison

Open = Callable[..., Any]


pytestmark = pytest.mark.slow  # a real browser


@pytest.fixture
def open_page(visit: Any, tmp_path: Path) -> Open:
    """Write and open a comparison."""
    return lambda comparison, **options: visit(write_page(comparison, tmp_path / "report.html"), **options)


def move(tab: Any, index: int) -> None:
    tab.locator("#gamma-slider").evaluate(
        "(slider, i) => { slider.value = i; slider.dispatchEvent(new Event('input', {bubbles: true})); }", index
    )


def highlighted(tab: Any) -> list[float]:
    return tab.evaluate(
        "(() => { const t = document.getElementById('frontier-chart').data.at(-1); return [t.x[0], t.y[0]]; })()"
    )


def conflict_line(tab: Any) -> list[float]:
    return tab.evaluate("document.getElementById('conflict-chart').data.at(-1).y")


def marker(tab: Any) -> float:
    return tab.evaluate("document.getElementById('metrics-chart').layout.shapes[0].x0")


def overflow(tab: Any) -> int:
    return tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def test_the_slider_moves_everything(open_page: Open, comparison: Comparison) -> None:
    tab = open_page(comparison)
    assert tab.inner_text("#gamma-value") == "γ = 0.6"
    before = tab.inner_text("#readout"), highlighted(tab), conflict_line(tab), marker(tab)
    move(tab, 3)
    after = tab.inner_text("#readout"), highlighted(tab), conflict_line(tab), marker(tab)
    assert all(old != new for old, new in zip(before, after, strict=True))
    point = comparison.frontiers[0].points[3]
    assert tab.inner_text("#gamma-value") == "γ = 0.3"
    assert highlighted(tab) == pytest.approx([100 * point.scores.ra, 100 * point.scores.ua])
    assert marker(tab) == pytest.approx(0.3)
    assert f"{100 * point.scores.ua:.2f} %" in tab.inner_text("#readout")
    assert "γ = 0.3" in tab.inner_text("#conflict-key")


def test_the_keyboard_works(open_page: Open, comparison: Comparison) -> None:
    tab = open_page(comparison)
    slider = tab.locator("#gamma-slider")
    slider.focus()
    tab.keyboard.press("ArrowLeft")
    assert tab.inner_text("#gamma-value") == "γ = 0.5"
    tab.keyboard.press("End")
    assert tab.inner_text("#gamma-value") == "γ = 1"
    tab.keyboard.press("Home")
    assert tab.inner_text("#gamma-value") == "γ = 0"
    assert slider.get_attribute("aria-valuetext").startswith("γ = 0: RA 100.00 %")
    assert tab.get_by_label("Unlearning intensity").get_attribute("id") == "gamma-slider"


def test_the_readout_flags_an_undetermined_attack(open_page: Open, comparison: Comparison) -> None:
    tab = open_page(comparison)
    assert "undetermined" not in tab.inner_text("#readout")
    move(tab, 0)
    assert "undetermined" in tab.inner_text("#readout")
    assert "of 90 steps" in tab.inner_text("#readout")


def test_clicking_a_point_selects_it(open_page: Open, comparison: Comparison, until: Any) -> None:
    tab = open_page(comparison)
    tab.locator("#frontier-chart .scatterlayer .trace").nth(1).locator(".point").nth(2).hover(force=True)
    tab.wait_for_selector("#frontier-chart .hovertext")
    assert "CUP" in tab.text_content("#frontier-chart .hovertext")
    tab.mouse.down()
    tab.mouse.up()
    until(tab, "document.getElementById('gamma-value').textContent === 'γ = 0.2'")


def test_the_legend_hides_a_method_and_keeps_the_focus(open_page: Open, comparison: Comparison) -> None:
    tab = open_page(comparison)
    button = tab.locator("#legend button").nth(1)
    button.focus()
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.getElementById('frontier-chart').data[4].visible") is False
    assert tab.locator("#legend button").nth(1).get_attribute("aria-pressed") == "false"
    assert tab.evaluate("document.activeElement.textContent") == "WS"


def test_the_views_change_the_range(open_page: Open, comparison: Comparison) -> None:
    tab = open_page(comparison)
    assert "runs are outside" in tab.inner_text("#outside")
    tab.click("[data-view=whole]")
    assert tab.evaluate("document.getElementById('frontier-chart').layout.xaxis.range") == [-3, 103]
    assert tab.inner_text("#outside") == ""


def test_several_gamma_frontiers_can_be_chosen(open_page: Open, build: Any) -> None:
    cup, ws, ga = build().frontiers
    printed = replace(cup, name="CUP as printed", points=cup.points[:4])
    tab = open_page(build(frontiers=[cup, ws, printed, ga]))
    tab.select_option("#frontier-select", label="CUP as printed")
    assert tab.get_attribute("#gamma-slider", "max") == "3"
    assert tab.inner_text("#gamma-value") == "γ = 0.3"


def test_in_a_grid_the_line_along_gamma_is_the_runs_that_share_all_else(open_page: Open, build: Any) -> None:
    cup = build().frontiers[0]
    faster = [replace(p, settings={**p.settings, "lr": 0.02}) for p in cup.points[:4]]
    tab = open_page(build(frontiers=[replace(cup, points=[*cup.points, *faster])]))
    move(tab, 13)
    assert tab.inner_text("#gamma-value") == "γ = 0.2, λ = 0.02"
    assert tab.inner_text("#metrics-family") == "Runs with λ = 0.02."
    assert tab.evaluate("document.getElementById('metrics-chart').data[1].x") == pytest.approx([0, 0.1, 0.2, 0.3])


def test_the_table_sorts(open_page: Open, comparison: Comparison) -> None:
    tab = open_page(comparison)
    names = lambda: tab.locator("#methods tbody th").all_inner_texts()  # noqa: E731
    head = tab.locator("#methods thead th").nth(7)
    head.locator("button").click()
    assert names() == ["retrained", "CUP", "WS", "GA", "original"]
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").click()
    assert names() == ["original", "GA", "WS", "CUP", "retrained"]
    tab.locator("summary", has_text="All runs").click()
    ua = tab.locator("#runs thead th").nth(3)
    ua.locator("button").click()
    ua.locator("button").click()
    cells = tab.locator("#runs tbody tr td:nth-child(4)").all_inner_texts()
    assert cells[0] == "100.00"
    assert all(cell.startswith("✗") for cell in cells[-2:])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_are_readable(open_page: Open, comparison: Comparison, scheme: str) -> None:
    tab = open_page(comparison, color_scheme=scheme)
    paper, ink = tab.evaluate(
        "(() => { const s = getComputedStyle(document.documentElement); return [s.backgroundColor, s.color]; })()"
    )
    light = sum(int(part) for part in paper[4:-1].split(",")) > 3 * 128
    assert light is (scheme == "light")
    assert paper != ink
    colour = tab.evaluate("document.getElementById('conflict-chart').data.at(-1).line.color")
    assert colour == ("#0b62a4" if scheme == "light" else "#6cb6f0")


def test_a_change_of_theme_redraws(open_page: Open, comparison: Comparison, until: Any) -> None:
    tab = open_page(comparison, color_scheme="light")
    tab.emulate_media(color_scheme="dark")
    until(tab, "document.getElementById('conflict-chart').data.at(-1).line.color === '#6cb6f0'")


def test_paper_is_light(open_page: Open, comparison: Comparison) -> None:
    tab = open_page(comparison, color_scheme="dark")
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate("document.getElementById('conflict-chart').data.at(-1).line.color") == "#0b62a4"
    assert tab.evaluate("document.getElementById('conflict-chart').layout.width") == 660
    tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert tab.evaluate("document.getElementById('conflict-chart').data.at(-1).line.color") == "#6cb6f0"


@pytest.mark.parametrize("width", [380, 640, 900, 1280])
@pytest.mark.slow
def test_no_width_scrolls_sideways(open_page: Open, build: Any, width: int) -> None:
    cup, *others = build().frontiers
    long = replace(cup, name="A_method_with_a_name_that_does_not_want_to_end_" * 2)
    tab = open_page(build(frontiers=[long, cup, *others], title="x" * 120), width=width)
    for summary in tab.locator("summary").all():
        summary.click()
    assert overflow(tab) == 0


def test_on_a_phone_the_slider_stays_in_sight(open_page: Open, comparison: Comparison) -> None:
    tab = open_page(comparison, width=380)
    tab.evaluate("document.getElementById('conflict-chart').scrollIntoView({block: 'end'})")
    assert tab.locator("#gamma-slider").bounding_box()["y"] >= 0


def test_evil_text_is_only_text(open_page: Open, build: Any) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)><b>%{x}</b>"
    cup = build().frontiers[0]
    points = [replace(p, label=evil, knob=None) for p in cup.points]
    tab = open_page(build(title=evil, frontiers=[replace(cup, name=evil, points=points)], provenance={evil: evil}))
    assert tab.inner_text("h1") == evil
    tab.locator("#frontier-chart .scatterlayer .trace").nth(1).locator(".point").nth(3).hover(force=True)
    tab.wait_for_selector("#frontier-chart .hovertext")
    assert tab.locator("img").count() == 0


def edge_cases(build: Any) -> dict[str, Comparison]:
    cup, ws, ga = build().frontiers
    lost = {"scores": Scores.of_diverged(), "diverged": {"step": 1, "reason": "x"}, "history": {}}
    empty = {"step": [], "cosine": []}
    return {
        "no reference": build(retrained=None, frontiers=[replace(cup, reference=None)]),
        "no gamma": build(frontiers=[ws, ga]),
        "one point": build(frontiers=[replace(cup, points=cup.points[:1])]),
        "all diverged": build(frontiers=[replace(cup, points=[replace(p, **lost) for p in cup.points])]),
        "empty history": build(frontiers=[replace(cup, points=[replace(p, history=empty) for p in cup.points])]),
        "nothing": build(retrained=None, frontiers=[], provenance={}, problem={}),
        "random, unjudged": build(retrained=None, problem={"kind": "random"},
                                  frontiers=[replace(cup, kind="random", reference=None)]),
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["no reference", "no gamma", "one point", "all diverged", "empty history", "nothing", "random, unjudged"]
)
@pytest.mark.slow
def test_missing_pieces_do_not_break_the_page(open_page: Open, build: Any, name: str) -> None:
    tab = open_page(edge_cases(build)[name])
    assert tab.locator("#frontier-chart .main-svg").count() > 0
    assert tab.locator("#panel").is_visible() is (name not in ("no gamma", "nothing"))
    if name == "all diverged":
        assert "Diverged at step 1" in tab.inner_text("#readout")
