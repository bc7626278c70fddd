"""Every export of standings: what it says, what it escapes, and that it can be read back."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradpivot.errors import GradPivotError
from gradpivot.report.common.grid import Grid
from gradpivot.report.common.latex import latex_text
from gradpivot.report.standings.files import STANDINGS, write_standings
from gradpivot.report.standings.grids import grids
from gradpivot.report.standings.plane import cloud
from gradpivot.report.standings.tables import STANDINGS_COLUMNS
from gradpivot.report.standings.wording import sentences
from gradpivot.results._standings import Standings, standings
from gradpivot.results.record import Record
from gradpivot.results.series import measures
from sound_latex import assert_sound

Build = Callable[..., Record]
AWKWARD = "_A_&_$B$ {50 %} [red] <i>"


@pytest.fixture(scope="module")
def found(sweep: list[Record]) -> Standings:
    return standings(sweep)


@pytest.fixture(scope="module")
def cifar(sweep: list[Record]) -> Standings:
    return standings([replace(record, problem="cifar10") for record in sweep])


def grid(standings: Standings, name: str) -> Grid:
    return next(g for g in grids(standings.tables[0]) if g.name == name)


def test_the_grids_of_a_table(found: Standings, cifar: Standings) -> None:
    names = [g.name for g in grids(found.tables[0])]
    assert names == ["methods", "intervals", "time", "classes-hypervolume", "classes-delta", "dials"]
    assert "paper" in [g.name for g in grids(cifar.tables[0])]
    for g in grids(cifar.tables[0]):
        assert {len(line) for line in g.lines} == {len(g.headers)}, g.name


def test_best_and_second_best_are_marked_for_methods_only(record: Build) -> None:
    h = {"A": 0.9, "B": 0.7, "C": 0.90001, "D": 0.5}
    runs = [record("run", (v, 1, 1, 1), series=n) for n, v in h.items()]
    table = standings([*runs, record("retrained")])
    methods = grid(table, "methods")
    column = methods.headers.index("H ↑ (×100)")
    # 90.00 and 90.00 are equally good as printed.
    assert {line[0].text: line[column].mark for line in methods.lines} == {
        "Retrain": "", "A": "best", "B": "second", "C": "best", "D": "",
    }  # fmt: skip
    delta = methods.headers.index("Δ ↓ (pp)")
    assert next(line[delta] for line in methods.lines if line[0].text == "A") == ("10.00", "best")


def test_the_papers_form(found: Standings) -> None:
    """RA of CUP's nearest runs, γ = 1: 90 %, 89 % and 88 % on the three seeds of both classes."""
    cells = next(line for line in grid(found, "methods").lines if line[0].text == "CUP")
    assert re.fullmatch(r"\d+\.\d\d \(\d+\.\d\d\)", cells[1].text)


def test_sentences_say_who_leads_whoever_it_is(record: Build) -> None:
    values = {"CUP": (0.98, 0.99), "WS": (0.97, 0.999), "GA": (0.5, 0.52), "RL": (0.4, 0.43)}
    runs = [record("run", (v, 1, 1, 1), series=n, seed=s) for n, row in values.items() for s, v in enumerate(row)]
    (table,) = standings(runs).tables
    assert sentences(table)[0] == (
        "H: CUP leads with 98.50 (95 % interval over 2 sets 92.15 to 104.85); WS is tied with it; GA (difference "
        "47.50, 41.15 to 53.85) and RL (difference 57.00, 44.29 to 69.71) are behind."
    )
    (alone,) = standings([record("run", (0.5, 1, 1, 1))]).tables
    assert sentences(alone)[0] == "H: CUP is the only method, with 50.00 (one set, no interval)."
    assert sentences(alone)[-1] == "Time per run: CUP is the only method, with 1.00 s (one set, no interval)."


def rivals_of(record: Build, differences: dict[str, tuple[float, ...]], seeds: int = 2) -> str:
    """The sentence on H of A, 0.9 on two classes by so many seeds, and of series that are worse by so much."""
    places = [(forget, seed) for seed in range(seeds) for forget in "12"]
    every = {"A": (0.0,) * 4, **differences}
    runs = [
        record("run", (0.9 - d, 1, 1, 1), series=name, forget=f, seed=s)
        for name, row in every.items() for (f, s), d in zip(places, row, strict=False)
    ]  # fmt: skip
    return sentences(standings(runs).tables[0])[0]


def test_sentences_say_what_the_seeds_do_not_settle(record: Build) -> None:
    """B is tied (0.01 on average), C behind over sets (0.15 ± 0.0919) and not over two seeds, the rest behind."""
    rest = {name: (0.3 + i / 10,) * 4 for i, name in enumerate("DEFG")}
    told = rivals_of(record, {"B": (0.05, -0.03) * 2, "C": (0.1, 0.1, 0.2, 0.2), **rest})
    assert told == (
        "H: A leads with 90.00 (95 % interval over 4 sets 90.00 to 90.00); B is tied with it; C (difference 15.00, "
        "5.81 to 24.19) is behind on these classes, but two seeds do not confirm it; the other 4 are behind, the "
        "closest being D (difference 30.00, 30.00 to 30.00)."
    )


def test_sentences_on_one_seed_name_all_and_give_the_first_differences(record: Build) -> None:
    told = rivals_of(record, {name: (0.1 + i / 10,) * 2 for i, name in enumerate("BCDE")}, seeds=1)
    assert told.endswith(
        "B (difference 10.00, 10.00 to 10.00), C (difference 20.00, 20.00 to 20.00), D (difference 30.00, 30.00 to "
        "30.00) and E are behind on these classes, but one seed is not enough to confirm it."
    )


def test_sentences_about_missing_sets(record: Build) -> None:
    runs = [record("run", (0.5 + 0.01 * s, 1, 1, 1), series="A", seed=s) for s in range(6)]
    runs += [record("run", (0.9, 1, 1, 1), series="B", seed=s) for s in (0, 1)]
    runs += [record("run", (0.9, 1, 1, 1), series="C", seed=0)]
    (table,) = standings(runs).tables
    told = sentences(table)[0]
    assert "A leads with 52.50" in told
    assert "on the 6 shared sets" in told
    assert "B, which ran on different sets, is better on the 2 shared ones (by 39.50)" in told
    assert told.endswith("too few sets to separate it from C.")


def test_markdown(found: Standings, cifar: Standings) -> None:
    text = STANDINGS.markdown(found)
    assert "## digits, class-wise, paper protocol" in text
    assert "| **" in text
    assert "<u>" in text
    assert "The paper has no" not in text
    assert "&lt;i>" in text
    assert "### Comparison with the paper on CIFAR-10" in STANDINGS.markdown(cifar)
    # Every line of a table has as many cells as its head.
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({re.sub(r"\\\|", "", line).count("|") for line in block.splitlines()}) == 1


def test_the_paper_as_context_is_labelled(sweep: list[Record]) -> None:
    told = standings(sweep, beside="cifar10")
    text = STANDINGS.markdown(told)
    assert "### Comparison with the paper on CIFAR-10, context only" in text
    assert "91.83 (0.97)" in text
    assert "CUP, paper (SVC)" not in text  # class 3 of digits is not class 3 of CIFAR-10
    assert "cifar10 (context)" in STANDINGS.csv(told)
    assert json.loads(STANDINGS.json(told))["tables"][0]["paper"] == {"dataset": "cifar10", "context": True}


def test_latex_escapes_everything() -> None:
    assert latex_text("a_b & 50 % #1 {x} ~^\\ $") == (
        r"a\_b \& 50 \% \#1 \{x\} \textasciitilde{}\textasciicircum{}\textbackslash{} \$"
    )
    assert latex_text("Δ ↓ γ ℓ1 – é 三\n") == r"$\Delta$ $\downarrow$ $\gamma$ $\ell$1 -- é \texttt{U+4E09} "


def test_latex_uses_only_what_it_may(found: Standings, cifar: Standings) -> None:
    text = STANDINGS.latex(cifar) + STANDINGS.latex(found)
    assert_sound(text)
    assert r"\_A\_\&\_\$B\$ \{50 \%\} [red] \textless{}i\textgreater{}" in text
    assert re.search(r"\\textbf\{\d+\.\d\d \(\d+\.\d\d\)\}", text)


def test_a_bracket_at_the_start_of_a_line_is_no_argument(record: Build) -> None:
    text = STANDINGS.latex(standings([record("run", series="[1cm]"), record("run", series="*")]))
    assert "\n{}[1cm] & " in text
    assert "\n{}* & " in text


def test_csv_reads_back(cifar: Standings) -> None:
    lines = list(csv.DictReader(io.StringIO(STANDINGS.csv(cifar))))
    assert tuple(lines[0]) == STANDINGS_COLUMNS
    cup = {
        line["measure"]: line for line in lines
        if (line["series"], line["protocol"], line["forget"]) == ("CUP", "clean", "all")
    }  # fmt: skip
    row = next(r for r in cifar.tables[1].series if r.name == "CUP")
    assert set(cup) == set(measures())
    h = row.measures["hypervolume_svc"]
    assert float(cup["hypervolume_svc"]["mean"]) == pytest.approx(100 * h.over_sets.mean)
    assert float(cup["hypervolume_svc"]["low"]) == pytest.approx(100 * h.over_sets.low)
    assert float(cup["hypervolume_svc"]["paper"]) == pytest.approx(91.83)
    assert (cup["hypervolume_svc"]["paper dataset"], cup["hypervolume"]["paper"]) == ("cifar10", "")
    assert (cup["delta"]["unit"], cup["seconds"]["unit"], cup["hypervolume"]["n"]) == ("pp", "s", "6")
    assert float(cup["seconds"]["mean"]) == 2
    classes = [line["forget"] for line in lines if line["series"] == "WS" and line["measure"] == "ra"]
    assert classes == ["all", "3", "10"] * 2


def test_csv_holds_no_formula(record: Build) -> None:
    runs = [record("run", series="=1+1", problem="@x", forget="-2")]
    line = next(csv.DictReader(io.StringIO(STANDINGS.csv(standings(runs)))))
    assert (line["problem"], line["series"]) == ("'@x", "'=1+1")


def test_json_is_whole_and_in_fractions(found: Standings) -> None:
    told = json.loads(STANDINGS.json(found))
    assert told["schema"] == "gradpivot.standings/1"
    ra = [row["measures"]["ra"]["mean"] for table in told["tables"] for row in table["rows"]]
    assert max(ra) <= 1


def console_text(found: Standings, width: int = 80) -> str:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(STANDINGS.console(found))
    return out.getvalue()


def test_the_console_fits_80_columns_and_cuts_no_number(found: Standings, cifar: Standings) -> None:
    for text in (console_text(found), console_text(cifar)):
        assert max(map(len, text.splitlines())) <= 80
        assert "…" not in text
        assert "[red]" in text
        assert "H: " in text
    assert "94.88 (0.51)" in console_text(cifar)


def test_notes_of_the_caller_are_in_every_export(sweep: list[Record]) -> None:
    told = standings(sweep, notes=["7 runs of A_B failed.", "=1+1"])
    for write in (STANDINGS.markdown, STANDINGS.json, console_text, STANDINGS.page, STANDINGS.html):
        assert "7 runs of A_B failed." in write(told).replace(r"A\_B", "A_B"), write
    assert STANDINGS.latex(told).count(r"7 runs of A\_B failed.") == len(told.tables)
    lines = list(csv.DictReader(io.StringIO(STANDINGS.csv(told))))
    assert [line["note"] for line in lines if line["role"] == "note"] == ["7 runs of A_B failed.", "'=1+1"]
    assert {line["note"] for line in lines if line["role"] != "note"} == {""}


def test_the_time_grid_says_whose_time_it_is(record: Build) -> None:
    """(4 + 2) / 2 s a finite run of 30 s of retraining; with the diverged one 6.5 s, 21.67 % of it."""
    runs = [record("run", label=str(t), seconds=t) for t in (4, 2)] + [record("run", None, seconds=0.5)]
    found = standings([*runs, record("retrained", seconds=30)])
    time = grid(found, "time")
    cells = dict(zip(time.headers, [cell.text for cell in time.lines[-1]], strict=True))
    assert (cells["Time per run ↓ (s)"], cells["Whole space ↓ (s)"]) == ("3.00", "6.50")
    assert float(cells["Run / Retrain ↓ (%)"]) == 10
    assert float(cells["Space / Retrain ↓ (%)"]) == pytest.approx(21.67, abs=0.05)
    assert "excludes diverged runs" in time.caption
    assert "left out of the time per run" in grid(found, "methods").caption


def test_the_plane_means_leave_half_done_sets_out(record: Build) -> None:
    """Setting x has (0.8, 0.5) on the whole set and (0.2, 0.1) on the half-done one, whose run is still drawn."""
    runs = [record("run", (0.8, 0.5, 1, 1), label="x"), record("run", (0.5, 0.8, 1, 1), label="y")]
    runs.append(record("run", (0.2, 0.1, 1, 1), label="x", seed=1))
    found = cloud(standings(runs).tables[0].series[0])
    assert len(found.runs) == 3
    assert {s.label: (s.x, s.y, s.runs) for s in found.settings} == {"x": (0.8, 0.5, 1), "y": (0.5, 0.8, 1)}
    assert found.front == ((0.5, 0.8), (0.8, 0.5))


def test_random_subsets_say_their_direction(record: Build) -> None:
    place = {"kind": "random", "forget": "10 %"}
    told = standings([record("run", **place), record("retrained", **place), record("original", **place)])
    assert "RA → retrained (%)" in grid(told, "methods").headers
    assert [head.split()[0] for head in grid(told, "methods").headers[1:6]] == ["RA", "UA", "TA", "AUC", "Uncertainty"]
    assert "MIA" not in console_text(told)
    assert "H uses 1 − the gap" in STANDINGS.markdown(told)
    assert max(map(len, console_text(told).splitlines())) <= 80
    unjudged = standings([record("run", **place)])
    assert [cell.text for cell in grid(unjudged, "methods").lines[0][1:]] == ["–"] * 7
    for write in (STANDINGS.latex, STANDINGS.csv, STANDINGS.json, console_text):
        assert write(unjudged)


@pytest.mark.slow
def test_every_format_is_written(found: Standings, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = write_standings(found, tmp_path / "new", title="Ours")
    assert all(path.stat().st_size > 500 for path in files)
    assert {path.suffix for path in files} == {".md", ".tex", ".csv", ".json", ".html", ".png"}
    assert (tmp_path / "new" / "standings.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    assert "<title>Ours</title>" in (tmp_path / "new" / "standings.html").read_text(encoding="utf-8")
    assert write_standings(found, tmp_path, ["json"]) == [tmp_path / "standings.json"]


def test_an_unknown_format_is_refused_before_anything_is_written(found: Standings, tmp_path: Path) -> None:
    with pytest.raises(GradPivotError, match=r"'pdf'; choose from markdown, latex"):
        write_standings(found, tmp_path, ["json", "pdf"])
    assert list(tmp_path.iterdir()) == []
    assert len(STANDINGS.formats) == 6


def test_two_writings_are_the_same(sweep: list[Record], found: Standings) -> None:
    again = standings(reversed(sweep))
    writers: tuple[Any, ...] = (STANDINGS.markdown, STANDINGS.latex, STANDINGS.csv, STANDINGS.json)
    for write in writers:
        assert write(again) == write(found)
