"""docs/results is written from records: a page that was edited by hand, or left behind by new records, fails here."""

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from benchmarks.results.__main__ import PAGES, RESULTS
from benchmarks.results.experiments import EXPERIMENTS
from benchmarks.results.page import Records, fill


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_what_its_records_say(page):
    written = (RESULTS / f"{page.name}.md").read_text(encoding="utf-8")
    assert written == page.text(Records(RESULTS / "records")), "run: make results RUN=no"


def test_every_results_page_is_generated():
    assert {file.stem for file in RESULTS.glob("*.md")} == {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_figures_of_a_page_are_there(page):
    text = (RESULTS / f"{page.name}.md").read_text(encoding="utf-8")
    named = {part.split(")")[0] for part in text.split("](figures/")[1:]}
    assert named <= {file.name for file in (RESULTS / "figures").iterdir()}


def test_every_record_belongs_to_an_experiment():
    names = {Path(file.stem).stem for file in (RESULTS / "records").iterdir()} - {"about", "ddpm-chosen"}
    assert names <= set(EXPERIMENTS)


def test_quick_records_stand_before_the_committed_ones(tmp_path):
    (tmp_path / "toy.json").write_text("1")
    (tmp_path / "about.json").write_text('{"toy": {"commit": "abc", "date": "today", "machine": "mine", "torch": "2"}}')
    records = Records(tmp_path, RESULTS / "records")
    assert records.data("toy") == 1
    assert records.about("toy") == "Commit abc, today; mine, torch 2."
    assert records.data("vae")["forgotten"] == 3


def test_a_field_without_a_value_is_an_error():
    assert fill("a {{ b }} {c}", {"b": "1", "d": "2"}, "page").endswith("a 1 {c}")
    with pytest.raises(SystemExit, match="no value for: b"):
        fill("a {{ b }}", {}, "page")
