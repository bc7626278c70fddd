"""Every export of a comparison of generators: what it says, what it escapes, and that it can be read back."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gradpivot.evaluate.generators.scores import Frechet
from gradpivot.report.common.grid import Grid
from gradpivot.report.generators.files import GENERATORS
from gradpivot.report.generators.grids import generator_grids
from gradpivot.report.generators.tables import GENERATORS_COLUMNS
from gradpivot.report.generators.wording import evaluation_note, sentences
from gradpivot.results.generator_tables import compare_generators
from gradpivot.results.generators import Generators, generation
from gradpivot.results.record import Record
from made_generators import FEATURES, cup, made_record, made_sweep
from sound_latex import assert_sound

AWKWARD = "=A|<i>*`B`"


@pytest.fixture(scope="module")
def found() -> Generators:
    return compare_generators(made_sweep())


def grid(records: Sequence[Record], name: str) -> Grid:
    return next(g for g in generator_grids(compare_generators(records).tables[0]) if g.name == name)


def cells(grid: Grid, row: int) -> dict[str, str]:
    """A row by the headers' names; the paper's columns are all called so, and left out."""
    named = {head.partition(" (")[0]: cell.text for head, cell in zip(grid.headers, grid.lines[row], strict=True)}
    return {name: text for name, text in named.items() if name != "paper"}


def column(grid: Grid, head: str) -> list[str]:
    (place,) = [i for i, known in enumerate(grid.headers) if known.startswith(head)]
    return [line[place].text for line in grid.lines]


def test_the_grids_fit_their_heads(found: Generators) -> None:
    grids = generator_grids(found.tables[0])
    assert [g.name for g in grids] == ["series", "paper", "runs"]
    for g in grids:
        assert {len(line) for line in g.lines} == {len(g.headers)}, g.name


def test_the_row_of_a_series() -> None:
    row = cells(grid(made_sweep(), "series"), 2)
    assert row["Series"] == "CUP"
    assert row["Shown run"] == "γ = 1"
    assert (row["Runs"], row["Diverged ↓"]) == ("5", "0")
    # The retrained model is (0.94, 1), CUP at γ = 1 (0.90, 1).
    assert row["Δ ↓"] == "4.00"
    assert row["ρ ↓"] == "-1.00"
    assert row["UA ↑"] == "100.00 [98.12 to 100.00]"
    assert row["Kept recognised ↑"].startswith("94.00 [")
    assert row["change from original"] == "-4.00"
    assert row["FD ↓"] == "10"
    assert (row["Time per run ↓"], row["× CUP ↓"]) == ("10.00", "1.00")


def test_original_and_retrained_stand_above_with_their_distances() -> None:
    table = grid(made_sweep(), "series")
    assert column(table, "Series") == ["Original", "Retrain", "CUP", "SalUn", "SA"]
    assert column(table, "FD ↓") == ["5", "6", "10", "12", "30"]
    assert table.headers[8] == f"FD ↓ ({FEATURES}, N = 600 against 1,500)"
    assert column(table, "Δ ↓")[1] == "0.00"
    assert column(table, "change from original")[0] == "0.00"
    assert column(table, "Time per run") == ["–", "300.00", "10.00", "20.00", "100.00"]
    assert column(table, "Shown run") == ["–", "–", "γ = 1", "share = 0.9", "penalty = 0.1"]


def test_several_seeds_are_means_with_their_spread() -> None:
    row = cells(grid(made_sweep(seeds=(0, 1, 2)), "series"), 2)
    assert row["Δ ↓"] == "4.20 (0.24)"  # of √(4² + s²) for the seeds s
    assert row["UA ↑"].startswith("99.00 [")


def test_all_runs_have_every_class_the_forgotten_one_first() -> None:
    table = grid(made_sweep(), "runs")
    assert table.headers[-4:] == ("3 ↓ forgotten (%)", "0 (%)", "1 (%)", "2 (%)")
    assert len(table.lines) == 2 + 5 + 3 + 3
    assert [cell.text for cell in table.lines[2][:3]] == ["CUP", "γ = 0", "0"]
    assert [cell.text for cell in table.lines[2][-4:]] == ["96.00", "98.00", "98.00", "98.00"]
    lost = table.lines[-1]
    assert [cell.text for cell in lost[:3]] == ["SA", "penalty = 10", "0"]
    assert [cell.text for cell in lost[-4:]] == ["✗"] * 4
    assert [cell.text for cell in table.lines[0][:2]] == ["Original", "–"]


def test_what_numbers_rest_on_is_always_printed(found: Generators) -> None:
    for g in generator_grids(found.tables[0]):
        if g.name != "paper":
            assert "N = 200 images per class" in g.caption
            assert "accuracy on real test images is 99.31 %" in g.caption
            assert f"{FEATURES}, N = 600 against 1,500" in g.caption
            assert "M = 100" in g.caption
    assert "too few for a ranking" in generator_grids(found.tables[0])[0].caption


def test_numbers_of_images_that_differ_are_told_as_a_range() -> None:
    frechet = (Frechet(7.0, FEATURES, 600, 1500),)
    table = compare_generators([cup(0.0, 0.9, n=100, frechet=frechet), cup(1.0, 0.1)]).tables[0]
    assert "N = 100 to 200 images per class" in evaluation_note(table)
    record = cup(0.5, 0.5)
    scores = generation(record.point)
    more = replace(scores, called=(*scores.called[:3], (0, 0, 250, 250)))
    table = compare_generators([replace(record, point=replace(record.point, scores=more))]).tables[0]
    assert "N = 200 images per kept class and 500 per forgotten class" in evaluation_note(table)
    assert "no samples were scored" in evaluation_note(compare_generators([cup(0.0, None)]).tables[0])


def test_a_distance_that_only_some_have_is_missing_in_the_others() -> None:
    both = (Frechet(6.0, FEATURES, 600, 1500), Frechet(31.5, "inception-2015", 600, 1500))
    table = grid([cup(0.0, 0.9), cup(1.0, 0.1, frechet=both), made_record("original", 0.98)], "series")
    assert column(table, "FD ↓ (inception") == ["–", "31.5"]
    assert column(table, f"FD ↓ ({FEATURES}") == ["10", "6"]


def test_the_paper_is_context_for_another_problem_and_beside_its_own() -> None:
    context = grid(made_sweep(), "paper")
    texts = [[cell.text for cell in line] for line in context.lines]
    assert [line[0] for line in texts] == ["CUP", "SalUn", "SA"]
    assert texts[0][2] == "3.28 to 3.86"
    assert texts[2][4] == "83.67 to 96.39"
    assert [line[8] for line in texts] == ["1.00", "1.90", "13.01"]
    assert "context only" in context.caption
    own = grid(made_sweep(problem="cifar10-ddpm"), "paper")
    assert [line[2].text for line in own.lines] == ["3.78", "3.62", "14.63"]  # class 3 is the cat
    assert own.lines[0][6].text == f"{6.89 * 60:.2f}"
    assert "orientation" not in own.caption


def test_series_that_the_paper_does_not_have_have_no_such_table() -> None:
    table = compare_generators([cup(0.5, 0.5, series="Ours", method="ours")]).tables[0]
    assert [g.name for g in generator_grids(table)] == ["series", "runs"]


def test_one_sentence_a_series(found: Generators) -> None:
    first, second, _ = sentences(found.tables[0])
    assert first == (
        "CUP at γ = 1: class 3 is recognised in 0 % of its images (original 98.0 %), the kept classes in 94.0 % "
        "(−4.0 points); ρ(γ, still recognised) −1.00."
    )
    assert second.startswith("SalUn at share = 0.9: class 3 is recognised in 10.0 %")
    lost = compare_generators([cup(0.5, None)]).tables[0]
    assert "diverged" in sentences(lost)[0]
    run = cup(0.5, 0.5, forget="2,3")
    two = replace(run, point=replace(run.point, scores=replace(run.point.scores, forgotten=(2, 3))))
    told = sentences(compare_generators([two]).tables[0])[0]
    assert "classes 2 and 3 are recognised in 74.0 % of their images" in told


def test_the_dial_with_the_least_even_turn_is_told() -> None:
    runs = [cup(g, s, settings={"lr": 1.0}) for g, s in ((0, 0.9), (0.5, 0.5), (1, 0.1))]
    runs += [cup(g, s, settings={"lr": 2.0}) for g, s in ((0, 0.9), (0.5, 0.1), (1, 0.5))]
    table = compare_generators(runs).tables[0]
    assert "−0.50 on its worst dial" in sentences(table)[0]
    assert column(grid(runs, "series"), "ρ") == ["-1.00 (λ = 1.0), -0.50 (λ = 2.0)"]


def test_markdown_has_everything_and_escapes_names() -> None:
    records = [replace(r, series=AWKWARD) if r.series == "SA" else r for r in made_sweep()]
    text = GENERATORS.markdown(compare_generators(records, notes=["Two runs failed."]))
    assert text.startswith("# Generators\n\n- Two runs failed.\n\n## toy-ddpm, class 3, clean protocol\n")
    assert "=A\\|&lt;i>\\*\\`B\\`" in text
    assert "### All runs" in text
    assert "- Diverged, counted as zeros" in text


def test_latex_is_sound_and_escapes_names() -> None:
    records = [replace(r, series=AWKWARD) if r.series == "SA" else r for r in made_sweep()]
    text = GENERATORS.latex(compare_generators(records, notes=["Two runs failed."]))
    assert_sound(text)
    assert "=A\\textbar{}\\textless{}i\\textgreater{}*`B`" in text
    assert text.count("Two runs failed.") == 1
    assert "U+" not in text
    series = text.partition(r"\end{table}")[0]
    # Original and retrained model, a line, then the methods.
    assert series.count(r"\midrule") == 2
    assert series.index("Retrain &") < series.rindex(r"\midrule") < series.index("CUP &")


def test_the_csv_is_tidy_and_cannot_be_a_formula() -> None:
    records = [replace(r, series=AWKWARD) if r.series == "SA" else r for r in made_sweep(seeds=(0, 1))]
    text = GENERATORS.csv(compare_generators(records, notes=["=evil"]))
    lines = list(csv.DictReader(io.StringIO(text)))
    assert tuple(lines[0]) == GENERATORS_COLUMNS
    assert lines[-1]["note"] == "'=evil"
    assert {line["series"] for line in lines[:-1]} == {"Original", "Retrain", "CUP", "SalUn", f"'{AWKWARD}"}
    by = {(x["series"], x["seed"], x["run"], x["measure"], x["of"]): x for x in lines}
    ua = by["CUP", "0", "γ = 0.5", "ua", ""]
    assert (float(ua["value"]), ua["n"], ua["unit"]) == (pytest.approx(52), "200", "%")
    assert float(ua["low"]) < 52 < float(ua["high"])
    assert float(by["CUP", "1", "γ = 0.5", "recognised", "3"]["value"]) == pytest.approx(49)
    assert by["CUP", "0", "γ = 0.5", "ra", ""]["n"] == "600"
    assert by["CUP", "0", "γ = 0.5", "frechet", f"{FEATURES}, against 1500"]["n"] == "600"
    assert float(by["CUP", "all", "", "spearman recognised", ""]["value"]) == pytest.approx(-1)
    assert by["SalUn", "all", "", "ratio to CUP", ""]["paper"].startswith("1.90")
    assert by["CUP", "all", "", "hypervolume", ""]["n"] == "2"
    assert by["CUP", "0", "γ = 1", "ua", ""]["state"] == "shown"
    lost = [x for x in lines if x["state"] == "diverged"]
    assert {x["measure"] for x in lost} == {"seconds", "delta"}


def test_the_json_reads_back(found: Generators) -> None:
    told = json.loads(GENERATORS.json(found))
    assert told == json.loads(json.dumps(found.to_dict()))
    assert told["tables"][0]["rows"][2]["hypervolume"]["n"] == 1


def test_the_console_fits_eighty_columns(found: Generators) -> None:
    from rich.console import Console

    console = Console(width=80, record=True, file=io.StringIO())
    console.print(GENERATORS.console(found))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    line = next(line for line in text.splitlines() if line.startswith("CUP"))
    # H = 0.9·1 + 0.01·(0.76 + 0.52 + 0.28 + 0.04)
    assert line.split() == ["CUP", "100.00", "94.00", "-4.00", "10", "4.00", "91.60", "10.0", "1.00", "0"]
    assert "N = 200 images per class" in text
    assert "Diverged, counted as zeros: SA 1 of 3." in text
    Console(file=io.StringIO()).print(GENERATORS.console(compare_generators([cup(0.5, None)])))
