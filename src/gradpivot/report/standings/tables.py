"""Standings for console and CSV, with the paper's values next to ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gradpivot.evaluate import headline_metrics
from gradpivot.report.common.exports import CsvLine
from gradpivot.report.common.tables import rich_table, spreadsheet_text
from gradpivot.report.common.wording import number
from gradpivot.report.standings.grids import marks, ranked_measures
from gradpivot.report.standings.wording import head, measure_name, paper_title, scaled, spread, unit
from gradpivot.results import Estimate, Measure, PaperValue, Series, Table, measures

if TYPE_CHECKING:
    import rich.table

__all__ = ["STANDINGS_COLUMNS", "console_tables", "csv_lines"]

_VOLUMES = ("delta", "hypervolume", "hypervolume_without_mia", "hypervolume_svc")

STANDINGS_COLUMNS = (
    "problem", "task", "protocol", "series", "role", "forget", "measure", "unit", "mean", "std", "std over classes",
    "n", "low", "high", "mean over seeds", "low over seeds", "high over seeds", "paper", "paper std",
    "paper dataset", "note",
)  # fmt: skip


def csv_lines(table: Table) -> Iterator[CsvLine]:
    """One line per series, forget set (or ``all``) and measure, with Student intervals."""
    for row in table.rows:
        for line in _series_lines(table, row):
            yield [*line, ""]


def _series_lines(table: Table, row: Series) -> Iterator[CsvLine]:
    texts = [spreadsheet_text(part) for part in (table.problem, table.task, table.protocol, row.name, row.role)]
    dataset = f"{table.dataset} (context)" if table.context else table.dataset or ""
    for measure in measures(table.kind):
        m = row.measures[measure]
        if m is not None:
            values = [m.over_seeds.mean, m.over_seeds.low, m.over_seeds.high]
            paper = table.paper(row, measure)
            yield [*texts, "all", measure, unit(measure), *_csv_estimate(measure, m.over_sets, m.std_forget),
                   *(scaled(measure, v) for v in values), *_csv_paper(measure, paper, dataset)]  # fmt: skip
    for forget, cells in row.classes.items() if len(row.classes) > 1 else ():
        for measure, cell in cells.items():
            if cell is not None:
                paper = table.paper(row, measure, forget)
                yield [*texts, spreadsheet_text(forget), measure, unit(measure), *_csv_estimate(measure, cell, None),
                       None, None, None, *_csv_paper(measure, paper, dataset)]  # fmt: skip


def _csv_estimate(measure: str, value: Estimate, classes: float | None) -> CsvLine:
    mean, std, low, high = (scaled(measure, v) for v in (value.mean, value.std, value.low, value.high))
    return [mean, std, scaled(measure, classes), value.n, low, high]


def _csv_paper(measure: str, value: PaperValue | None, dataset: str) -> CsvLine:
    if value is None:
        return [None, None, ""]
    return [scaled(measure, value.mean), scaled(measure, value.std), dataset]


def console_tables(table: Table) -> list[rich.table.Table]:
    """The methods table and, if the paper has the task, the comparison with it."""
    return [_console_table(table), *([_console_paper(table)] if table.dataset else [])]


def _on_console(kind: str) -> tuple[str, ...]:
    scores = (metric.name for metric in headline_metrics(kind) if metric.variant_of is None)
    return (*scores, *(m for m in _VOLUMES if m in ranked_measures(kind)))


def _console_table(table: Table) -> rich.table.Table:
    from rich.text import Text

    styles = {"best": "bold", "second": "underline"}
    lines: list[list[str | Text]] = []
    marked = {measure: marks(table, measure) for measure in ranked_measures(table.kind)}
    columns = _on_console(table.kind)
    for row in table.rows:
        line: list[str | Text] = [row.name]
        for m in columns:
            mark = marked.get(m, {}).get(row.name, "") if row.role == "run" else ""
            line.append(Text(_mean(m, row.measures[m]), style=styles.get(mark, "")))
        lines.append([*line, _mean("seconds", row.measures["seconds"]), str(row.diverged)])
    headers = ["Method", *(head(m, table.kind).replace("→ retrained", "→") for m in columns), "Time ↓ (s)", "Diverged"]
    note = f"Means over {len(table.places)} (class, seed) sets; scores are of each set's run closest to the " \
        "retrained model. ✗ = diverged runs, which count as zeros."  # fmt: skip
    return rich_table(table.title, note, headers, lines)


def _console_paper(table: Table) -> rich.table.Table:
    headers = ["Method"]
    for measure in ("delta_svc", "hypervolume_svc"):
        headers += [measure_name(measure), "paper"]
    lines = [
        [row.name, *(text for m in ("delta_svc", "hypervolume_svc")
                     for text in (spread(m, row.measures[m]), spread(m, table.paper(row, m))))]
        for row in table.rows if row.role != "original"
    ]  # fmt: skip
    return rich_table(
        f"Comparison with the {paper_title(table)}", "Δ and H use MIA-SVC, like the paper.", headers, lines
    )


def _mean(measure: str, value: Measure | None) -> str:
    return number(scaled(measure, value.over_sets.mean if value else None))
