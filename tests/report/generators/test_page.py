"""The generators' page: parts, and its behaviour in a browser, with and without scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradpivot.errors import GradPivotError
from gradpivot.report.common import markup
from gradpivot.report.common.markup import write_html
from gradpivot.report.generators.files import GENERATORS
from gradpivot.report.generators.page import generators_payload
from gradpivot.results.generator_tables import compare_generators
from gradpivot.results.generators import Generators
from made_generators import cup, made_pictures, made_record, made_sweep

Open = Callable[..., Any]
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def found() -> Generators:
    return compare_generators(made_sweep())


def own(text: str) -> str:
    """The page without the vendored library."""
    return text.replace(markup.read_asset("common/vendor/plotly-basic.min.js"), "")


def test_the_page_has_its_parts(found: Generators) -> None:
    text = own(GENERATORS.page(found, "Ours"))
    assert "<title>Ours</title>" in text
    assert "13 records · 1 table" in text
    assert text.count("<img id=") == 2
    assert 'id="t0-series"' in text
    assert "http://" not in re.sub(r"http://www.w3.org/2000/svg", "", text)
    assert "$" + "{" not in re.sub(r"<script>.*?</script>", "", text, flags=re.S)


def test_the_payload_has_every_run_with_its_sheet(found: Generators) -> None:
    (table,) = json.loads(json.dumps(generators_payload(found), allow_nan=False))["tables"]
    assert [s["name"] for s in table["sets"]] == ["CUP", "SalUn", "SA"]
    assert [s["gamma"] for s in table["sets"]] == [True, False, False]
    assert set(table["models"]) == {"original 0", "retrained 0"}
    middle = table["sets"][0]["points"][2]
    assert middle["run"] == "γ = 0.5"
    assert middle["forgotten"][0] == pytest.approx(0.48)
    assert middle["forgotten"][1] < 0.48 < middle["forgotten"][2]
    assert middle["sheet"]["png"] == made_pictures(0.48).png
    assert middle["sheet"]["rows"][0] == {"name": 3, "share": pytest.approx(0.48)}
    lost = table["sets"][2]["points"][2]
    assert lost["sheet"] is None
    assert lost["empty"] == lost["diverged"] == "Diverged at step 7: loss is not finite."


def test_several_seeds_have_sets_of_their_own() -> None:
    (table,) = generators_payload(compare_generators(made_sweep(seeds=(0, 1))))["tables"]
    assert [s["name"] for s in table["sets"]][:2] == ["CUP, seed 0", "CUP, seed 1"]
    assert table["models"]["original 1"]["title"] == "Original, seed 1"


@pytest.fixture
def open_page(visit: Any, tmp_path: Path) -> Open:
    """Write and open a comparison."""
    return lambda told, **options: visit(write_html(tmp_path / "generators.html", GENERATORS.page(told)), **options)


def move(tab: Any, index: int) -> None:
    tab.locator("#gamma-slider").evaluate(
        "(slider, i) => { slider.value = i; slider.dispatchEvent(new Event('input', {bubbles: true})); }", index
    )


def marker(tab: Any) -> float:
    return tab.evaluate("document.getElementById('share-chart').layout.shapes[0].x0")


def overflow(tab: Any) -> int:
    return tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def source(tab: Any, name: str) -> str:
    return tab.get_attribute(f"#{name}-img", "src").removeprefix("data:image/png;base64,")


@pytest.mark.slow
def test_the_slider_switches_samples_labels_numbers_and_marker(open_page: Open, found: Generators) -> None:
    tab = open_page(found)
    assert tab.inner_text("#gamma-value") == "γ = 1"
    assert source(tab, "run") == made_pictures(0.0).png
    assert marker(tab) == 1
    move(tab, 2)
    assert tab.inner_text("#gamma-value") == "γ = 0.5"
    assert tab.inner_text("#run-title") == "CUP, γ = 0.5"
    assert source(tab, "run") == made_pictures(0.48).png
    assert source(tab, "beside") == made_pictures(0.98).png
    assert marker(tab) == 0.5
    labels = tab.locator("#run-rows li").all_inner_texts()
    assert [label.split() for label in labels] == [
        ["3", "forgotten", "48.0", "%"], ["0", "96.0", "%"], ["1", "96.0", "%"], ["2", "96.0", "%"],
    ]  # fmt: skip
    told = tab.inner_text("#readout")
    assert "52.00 %" in told
    assert "original 5; in-domain toy, N = 600 against 1,500" in told
    assert "-2.00" in told
    line = tab.evaluate("document.getElementById('share-chart').data[1].y")
    assert line == pytest.approx([96, 72, 48, 24, 0])


@pytest.mark.slow
def test_the_keyboard_works(open_page: Open, found: Generators) -> None:
    tab = open_page(found)
    slider = tab.locator("#gamma-slider")
    slider.focus()
    tab.keyboard.press("ArrowLeft")
    assert tab.inner_text("#gamma-value") == "γ = 0.75"
    tab.keyboard.press("Home")
    assert tab.inner_text("#gamma-value") == "γ = 0"
    assert slider.get_attribute("aria-valuetext") == (
        "γ = 0: forgotten class 3 recognised 96.0 %, kept classes recognised 98.0 %"
    )
    assert tab.get_by_label("Unlearning intensity").get_attribute("id") == "gamma-slider"


def test_pictures_are_sharp_and_the_frame_is_the_first_row(open_page: Open, found: Generators) -> None:
    tab = open_page(found)
    image = tab.locator("#run-img")
    assert image.evaluate("i => [i.naturalWidth, i.naturalHeight]") == [30, 24]
    assert image.evaluate("i => getComputedStyle(i).imageRendering") == "pixelated"
    box, frame = image.bounding_box(), tab.locator("#run-sheet .frame").bounding_box()
    assert frame["height"] == pytest.approx(box["height"] / 4, abs=1)
    assert (frame["x"], frame["y"], frame["width"]) == pytest.approx((box["x"], box["y"], box["width"]), abs=1)
    rows = tab.locator("#run-rows li").all()
    for i, row in enumerate(rows):
        middle = row.bounding_box()["y"] + row.bounding_box()["height"] / 2
        assert middle == pytest.approx(box["y"] + (i + 0.5) * box["height"] / 4, abs=2)


@pytest.mark.slow
def test_another_series_has_its_own_settings(open_page: Open, found: Generators) -> None:
    tab = open_page(found)
    tab.select_option("#set-select", label="SalUn")
    assert tab.inner_text("#gamma-value") == "share = 0.9"
    assert tab.inner_text("#gamma-name") == "Setting"
    assert tab.locator("#ends").is_hidden()
    assert tab.get_attribute("#gamma-slider", "max") == "2"
    assert tab.evaluate("document.getElementById('share-chart').layout.xaxis.ticktext") == [
        "share = 0.1", "share = 0.5", "share = 0.9",
    ]  # fmt: skip
    # None of them may be left out for want of room beside the outermost points.
    low, high = tab.evaluate("document.getElementById('share-chart').layout.xaxis.range")
    assert min(0 - low, high - 2) > 0.1 * 2


@pytest.mark.slow
def test_a_diverged_run_says_so_instead_of_showing_pictures(open_page: Open, found: Generators) -> None:
    tab = open_page(found)
    tab.select_option("#set-select", label="SA")
    move(tab, 2)
    assert tab.locator("#run-img").is_hidden()
    assert "Diverged at step 7" in tab.inner_text("#run-empty")
    assert "counts as zeros" in tab.inner_text("#readout")
    assert tab.evaluate("document.getElementById('share-chart').data.at(-1).x") == [2]
    move(tab, 0)
    assert tab.locator("#run-img").is_visible()
    assert tab.inner_text("#run-empty") == ""


def test_the_retrained_model_can_stand_beside(open_page: Open, found: Generators) -> None:
    tab = open_page(found)
    tab.locator("[data-beside=retrained]").focus()
    tab.keyboard.press("Enter")
    assert tab.inner_text("#beside-title") == "Retrained"
    assert source(tab, "beside") == made_pictures(0.0).png
    assert tab.get_attribute("[data-beside=original]", "aria-pressed") == "false"


@pytest.mark.slow
def test_in_a_grid_the_line_along_gamma_is_the_runs_that_share_all_else(open_page: Open) -> None:
    runs = [cup(g, 1 - g * lr / 2, settings={"lr": lr}) for g in (0, 0.5, 1.0) for lr in (1.0, 2.0)]
    tab = open_page(compare_generators(runs))
    move(tab, 4)
    assert tab.inner_text("#gamma-value") == "γ = 0.5, λ = 2"
    assert tab.inner_text("#share-family") == "Runs with λ = 2."
    assert tab.evaluate("document.getElementById('share-chart').data[1].y") == pytest.approx([100, 50, 0])


def test_choosing_a_table_changes_words_samples_and_tables(open_page: Open) -> None:
    other = [cup(g, 0.6, protocol="own") for g in (0.1, 0.2)]
    tab = open_page(compare_generators([*made_sweep(), *other]))
    assert tab.locator("#t0-series").is_visible()
    assert not tab.locator("#t1-series").is_visible()
    tab.locator("#table-select").focus()
    tab.keyboard.press("ArrowDown")
    assert tab.locator("#t1-series").is_visible()
    assert tab.inner_text("#gamma-value") == "γ = 0.1"
    assert source(tab, "run") == made_pictures(0.6).png
    assert tab.locator("#frontier-label").is_hidden()


def test_without_scripts_the_first_sheets_and_the_tables_show(browser: Any, found: Generators, tmp_path: Path) -> None:
    path = write_html(tmp_path / "generators.html", GENERATORS.page(found))
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(path.as_uri())
    assert tab.locator("#run-img").is_visible()
    assert tab.locator("#beside-img").is_visible()
    assert source(tab, "run") == made_pictures(0.0).png
    assert tab.locator("#run-rows li").count() == 4
    assert tab.locator("#t0-series").is_visible()
    assert tab.locator("#panel").is_hidden()
    assert tab.locator("noscript").count() == 1
    context.close()


@pytest.mark.parametrize("width", [380, 640, 900, 1280])
@pytest.mark.slow
def test_no_width_scrolls_sideways(open_page: Open, width: int) -> None:
    long = "A_method_with_a_name_that_does_not_want_to_end_" * 2
    records = [replace(r, series=long) if r.series == "CUP" else r for r in made_sweep(seeds=(0, 1))]
    tab = open_page(compare_generators(records), width=width)
    for summary in tab.locator("summary").all():
        summary.click()
    assert overflow(tab) == 0


@pytest.mark.slow
def test_on_a_phone_the_slider_stays_in_sight(open_page: Open, found: Generators) -> None:
    tab = open_page(found, width=380)
    sheet, readout = tab.locator("#run-sheet").bounding_box(), tab.locator("#readout").bounding_box()
    assert tab.locator("#gamma-slider").bounding_box()["y"] < sheet["y"] < readout["y"]
    tab.evaluate("document.getElementById('share-chart').scrollIntoView({block: 'end'})")
    assert tab.locator("#gamma-slider").bounding_box()["y"] >= 0


@pytest.mark.slow
def test_paper_is_light_and_unfolded(open_page: Open, found: Generators) -> None:
    tab = open_page(found, color_scheme="dark")
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate("document.getElementById('share-chart').layout.width") == 660
    assert tab.locator("details:not([open])").count() == 0
    tab.evaluate("window.dispatchEvent(new Event('afterprint'))")


def test_evil_text_is_only_text(open_page: Open) -> None:
    place = {"problem": EVIL, "protocol": EVIL, "series": EVIL}
    settings = {"lr": EVIL}
    runs = [cup(g, 1 - g, settings=settings, **place) for g in (0, 0.5, 1)]
    runs.append(made_record("run", None, label=EVIL, **{**place, "series": f"{EVIL}2"}))
    tab = open_page(compare_generators(runs))
    assert EVIL in tab.inner_text("#lead-0")
    move(tab, 1)
    assert tab.locator("img").count() == 2


def test_a_sheet_that_is_no_picture_is_refused() -> None:
    run = cup(0.5, 0.5)
    evil = replace(run, pictures=replace(run.pictures, png=f'"{EVIL}'))
    with pytest.raises(GradPivotError, match=r"the sheet of 'CUP, γ = 0\.5' is not valid base64"):
        GENERATORS.page(compare_generators([evil]))


@pytest.mark.parametrize("name", ["no original", "no pictures", "one run", "all diverged"])
@pytest.mark.slow
def test_missing_pieces_do_not_break_the_page(open_page: Open, name: str) -> None:
    records = {
        "no original": [cup(g, 1 - g) for g in (0, 0.5, 1)],
        "no pictures": [cup(g, 1 - g, drawn=False) for g in (0, 0.5, 1)],
        "one run": [cup(0.5, 0.5), made_record("original", 0.98)],
        "all diverged": [cup(g, None) for g in (0, 0.5, 1)],
    }[name]
    tab = open_page(compare_generators(records))
    assert tab.locator("#share-chart .main-svg").count() > 0
    assert tab.locator("#beside-img").is_visible() is (name == "one run")
    assert tab.locator("#run-img").is_visible() is (name in ("no original", "one run"))
