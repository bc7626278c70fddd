"""The tables say what the data says, with directions, units and without letting text do harm."""

from __future__ import annotations

import csv
import io
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gradpivot.evaluate.scores import Scores
from gradpivot.report.common import wording
from gradpivot.report.common.tables import (
    console_table,
    markdown,
    method_headers,
    nearest,
    point_headers,
    point_rows,
    point_table,
    row_cells,
    rows,
    write_csv,
)
from gradpivot.results.comparison import Comparison


def printed(table: Any, width: int = 140) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


def all_diverged(comparison: Comparison) -> Comparison:
    lost = {"scores": Scores.of_diverged(), "diverged": {"step": 3, "reason": "loss is not finite"}}
    frontiers = [replace(f, points=[replace(p, **lost) for p in f.points]) for f in comparison.frontiers]
    return replace(comparison, frontiers=frontiers)


def test_one_row_each_in_order(comparison: Comparison) -> None:
    assert [row.name for row in rows(comparison)] == ["original", "retrained", "CUP", "WS", "GA"]


def test_a_method_is_shown_at_the_point_that_delta_measures(comparison: Comparison) -> None:
    for row, frontier in zip(rows(comparison)[2:], comparison.frontiers, strict=True):
        assert row.delta == pytest.approx(frontier.distance())
        assert row.hypervolume == pytest.approx(frontier.hypervolume())
        assert row.hypervolume_without_mia == pytest.approx(frontier.hypervolume(("ra", "ua", "ta")))
        assert row.runs == len(frontier.points)
    assert rows(comparison)[-1].diverged == 2


def of_records(comparison: Comparison, **more: float) -> Comparison:
    """The comparison as one of records, with these further scores of every run."""

    def told(point: Any) -> Any:
        return replace(point, scores=replace(point.scores, more=tuple(more.items())))

    frontiers = [replace(f, kind="random", points=[*map(told, f.points)]) for f in comparison.frontiers]
    return replace(
        comparison, problem={"name": "digits", "kind": "random"}, frontiers=frontiers,
        original=told(comparison.original), retrained=told(comparison.retrained),
    )  # fmt: skip


def test_tables_of_records_have_their_own_scores(comparison: Comparison, tmp_path: Path) -> None:
    told = of_records(comparison, auc=0.48, uncertainty=0.16, uncertainty_ideal=0.15)
    heads = method_headers(told)
    assert heads[2:7] == [
        "RA → retrained (%)", "UA → retrained (%)", "TA → retrained (%)", "AUC → 50 (%)", "Uncertainty → retrained (%)",
    ]  # fmt: skip
    assert row_cells(rows(told)[2])[5:7] == ["48.00", "16.00"]
    assert {len(row_cells(row)) for row in rows(told)} == {len(heads)}
    assert {len(cells) for *_, cells in point_rows(told)} == {len(point_headers(told))}
    for text in (markdown(told), printed(console_table(told))):
        assert "MIA" not in text
    assert [m.name for m in wording.meanings(told)][:5] == ["RA", "UA", "TA", "AUC", "Uncertainty"]
    write_csv(told, tmp_path / "results.csv")
    line = next(csv.DictReader((tmp_path / "results.csv").open(encoding="utf-8-sig")))
    assert {"MIA → retrained (%)", "AUC → 50 (%)"} <= line.keys()


def test_runs_from_before_the_scores_of_records_have_dashes(comparison: Comparison) -> None:
    old = of_records(comparison)
    assert [row_cells(row)[5:7] for row in rows(old)][:3] == [["–", "–"]] * 3
    assert all(row.delta is not None for row in rows(old))


def test_the_retrained_model_is_its_own_reference(comparison: Comparison) -> None:
    row = rows(comparison)[1]
    assert row.delta == 0
    assert row.hypervolume == pytest.approx(row.scores.ra * row.scores.ua * row.scores.ta * row.scores.mia)


def test_seconds_are_the_mean_of_a_run(comparison: Comparison) -> None:
    points = comparison.frontiers[0].points
    assert rows(comparison)[2].seconds == pytest.approx(sum(p.seconds for p in points) / len(points))


def test_without_a_reference_the_best_nondominated_sum_is_shown(build: Any) -> None:
    whole = build()
    frontier = replace(whole.frontiers[0], reference=None)
    row = rows(build(retrained=None, frontiers=[frontier]))[1]
    assert row.delta is None
    assert row.point is max(frontier.nondominated(), key=lambda p: sum(p.scores.vector()))


def test_the_comparisons_reference_serves_a_frontier_without_one(build: Any) -> None:
    bare = [replace(f, reference=None) for f in build().frontiers]
    assert rows(build(frontiers=bare))[2].delta == pytest.approx(build().frontiers[0].distance())


def test_random_forgetting_without_a_reference_is_not_judged(build: Any) -> None:
    frontier = replace(build().frontiers[0], reference=None, kind="random")
    comparison = build(retrained=None, frontiers=[frontier], problem={"kind": "random"})
    row = rows(comparison)[1]
    assert (row.point, row.hypervolume, row.delta) == (None, None, None)
    assert "→ retrained" in method_headers(comparison)[2]
    assert "closer to the retrained" in wording.caption(comparison)


def test_every_number_has_direction_and_unit(comparison: Comparison) -> None:
    for head in [*method_headers(comparison)[2:10], *point_headers(comparison)[2:9]]:
        assert "↑" in head or "↓" in head, head
        assert "(" in head, head


def test_the_caption_names_mia_sizes_and_reference(comparison: Comparison) -> None:
    text = wording.caption(comparison)
    for part in ("threshold attack", "undetermined", "146 forget", "1,291 retain", "324 test", "retrained model"):
        assert part in text


def test_an_undetermined_svc_is_marked(comparison: Comparison) -> None:
    original, retrained = (row_cells(row) for row in rows(comparison)[:2])
    assert original[6].endswith("*")
    assert not retrained[6].endswith("*")


def test_an_undetermined_mia_is_marked_and_left_out(comparison: Comparison, tmp_path: Path) -> None:
    assert "H and Δ use it" in wording.caption(comparison)
    retrained = comparison.retrained
    chance = replace(retrained, scores=replace(retrained.scores, mia_accuracy=0.52, mia_determined=False))
    frontiers = [replace(f, reference=chance.scores) for f in comparison.frontiers]
    found = replace(comparison, retrained=chance, frontiers=frontiers)
    assert row_cells(rows(found)[1])[5].endswith("*")
    assert not row_cells(rows(found)[0])[5].endswith("*")
    for row in rows(found):
        assert row.hypervolume == row.hypervolume_without_mia
    assert "MIA is undetermined for the retrained model; H and Δ leave it out." in wording.caption(found)
    assert "in (RA, UA, TA), in percentage points" in wording.caption(found)
    write_csv(found, tmp_path / "runs.csv")
    lines = list(csv.DictReader((tmp_path / "runs.csv").read_text("utf-8-sig").splitlines()))
    assert [line["MIA determined"] for line in lines[:2]] == ["yes", "no"]
    assert float(lines[0]["MIA low (%)"]) <= float(lines[0]["MIA high (%)"])


def test_diverged_runs_are_shown_as_diverged(comparison: Comparison) -> None:
    lost = [cells for *_, point, cells in point_rows(comparison) if point.diverged]
    assert len(lost) == 2
    assert lost[0][2:7] == ["✗"] * 5
    assert lost[0][-1] == "diverged at step 23: loss is not finite"


def test_all_diverged_still_gives_rows(comparison: Comparison) -> None:
    found = rows(all_diverged(comparison))
    assert found[2].scores is None
    assert found[2].hypervolume == 0
    assert row_cells(found[2])[2] == "✗"


def test_a_tie_prefers_the_finite_run(comparison: Comparison) -> None:
    frontier = comparison.frontiers[0]
    zeros = replace(frontier.points[0], scores=Scores.of_diverged())
    lost = replace(zeros, diverged={"step": 1, "reason": "x"})
    assert nearest(replace(frontier, points=[lost, zeros])) is zeros


def test_missing_numbers_become_dashes(comparison: Comparison) -> None:
    frontier = comparison.frontiers[0]
    scores = replace(frontier.points[0].scores, ra=math.nan, mia_svc=None)
    broken = replace(frontier, points=[replace(frontier.points[0], scores=scores)])
    row = rows(replace(comparison, frontiers=[broken]))[2]
    assert row.hypervolume is None
    cells = next(cells for name, *_, cells in point_rows(replace(comparison, frontiers=[broken])) if name == "CUP")
    assert (cells[2], cells[6]) == ("–", "–")


def test_console_tables_print_names_as_they_are(build: Any) -> None:
    frontier = replace(build().frontiers[0], name="[red]CUP[/red]")
    comparison = build(frontiers=[frontier], title="[bold]title")
    assert "[red]CUP[/red]" in printed(console_table(comparison))
    assert "[bold]title" in printed(point_table(comparison))


@pytest.mark.parametrize("draw", [console_table, point_table])
def test_console_tables_fit_eighty_columns(draw: Any, comparison: Comparison) -> None:
    printed_name = replace(comparison.frontiers[0], name="CUP as printed")
    text = printed(draw(replace(comparison, frontiers=[printed_name, *comparison.frontiers])), width=80)
    assert "…" not in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "99.85" in text


def test_runs_of_a_grid_are_told_apart(comparison: Comparison) -> None:
    cup = comparison.frontiers[0]
    faster = [replace(p, settings={**p.settings, "lr": 0.02}) for p in cup.points]
    grid = replace(cup, points=[*cup.points, *faster])
    runs = [run for name, run, *_ in point_rows(replace(comparison, frontiers=[grid])) if name == "CUP"]
    assert len(set(runs)) == 22
    assert runs[12] == "γ = 0.1, λ = 0.02"
    assert wording.family(grid, grid.points[12]) == "λ = 0.02"
    assert wording.family(cup, cup.points[0]) == ""


def test_markdown_is_a_table_that_text_cannot_break(build: Any) -> None:
    frontier = replace(build().frontiers[0], name="a|b\n<script>")
    lines = markdown(build(frontiers=[frontier])).splitlines()
    assert len({line.replace("\\|", "").count("|") for line in lines[:5]}) == 1
    assert "a\\|b &lt;script>" in lines[4]
    assert lines[-1].startswith("MIA is the threshold attack")


def test_csv_has_one_line_a_run_in_percent(comparison: Comparison, tmp_path: Path) -> None:
    write_csv(comparison, tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 + 11 + 10 + 10
    best = next(line for line in lines if line["run"] == "CUP(gamma=0.6)")
    assert float(best["UA ↑ (%)"]) == pytest.approx(100 * 145 / 146)
    assert float(best["UA low (%)"]) < float(best["UA ↑ (%)"]) < float(best["UA high (%)"])
    lost = next(line for line in lines if "diverged" in line["state"])
    assert lost["RA low (%)"] == ""


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t"])
def test_csv_text_cannot_become_a_formula(build: Any, tmp_path: Path, sign: str) -> None:
    original = replace(build().original, label=f'{sign}HYPERLINK("x")')
    frontier = replace(build().frontiers[0], name=f"{sign}1+1")
    write_csv(build(original=original, frontiers=[frontier]), tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.reader(file))
    assert lines[1][1].startswith("'")
    assert lines[3][0].startswith("'")
    assert float(lines[3][5]) > 0  # numbers stay numbers


def test_a_share_is_never_rounded_up_to_all() -> None:
    assert wording.share(0.973) == "97.3 %"
    assert wording.share(0.9996) == "99.96 %"
    assert wording.share(1.0) == "100 %"
    assert wording.share(0.0) == "0 %"


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        ({"kind": "class", "classes": [3]}, "class 3"),
        ({"kind": "class", "classes": [3, 5, 7]}, "classes 3, 5 and 7"),
        ({"kind": "class", "classes": [0]}, "class 0"),
        ({"kind": "class", "forgotten": "cat"}, "class cat"),
        ({"kind": "class"}, "the forgotten class"),
        ({"kind": "random", "classes": [3]}, "the forget set"),
    ],
)
def test_what_was_forgotten_in_words(problem: dict[str, Any], words: str) -> None:
    assert wording.forgotten(problem) == words


def test_results_that_went_through_json_draw_the_same(comparison: Comparison) -> None:
    again = Comparison.from_dict(json.loads(json.dumps(comparison.to_dict())))
    assert markdown(again) == markdown(comparison)


def test_importing_the_tables_is_light() -> None:
    code = (
        "import sys, gradpivot.report.common.tables, gradpivot.report.run.page, gradpivot.report.run.figures;"
        "print([m for m in ('torch', 'matplotlib', 'rich', 'numpy', 'moocore') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
