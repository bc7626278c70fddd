"""Generator comparisons for console and CSV, with the paper's values next to ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gradpivot.evaluate import GenerationScores
from gradpivot.report.common.exports import CsvLine
from gradpivot.report.common.tables import rich_table, spreadsheet_text
from gradpivot.report.common.wording import MISSING, number
from gradpivot.report.generators.grids import has_printed, paper_ratio, shown_distance
from gradpivot.report.generators.wording import evaluation_note, run_label, shown_run
from gradpivot.report.standings.wording import others
from gradpivot.results import (
    Estimate,
    GeneratorSeries,
    GeneratorSet,
    GeneratorTable,
    Record,
    generation,
    paper_generation,
    recognised_rho,
)

if TYPE_CHECKING:
    import rich.table

__all__ = ["GENERATORS_COLUMNS", "console_tables", "csv_lines"]

GENERATORS_COLUMNS = (
    "problem", "forget", "protocol", "series", "role", "seed", "run", "state", "measure", "of", "unit", "value", "std",
    "low", "high", "n", "paper", "note",
)  # fmt: skip


def csv_lines(table: GeneratorTable) -> Iterator[CsvLine]:
    """One line per series, run and measure; the seed is ``all`` for averages over seeds.

    ``of`` names the class of a recognised share or the features of a Fréchet distance. Runs have Wilson intervals
    over ``n`` images, series Student intervals over ``n`` seeds.
    """
    for row in table.rows:
        yield from _csv_series(table, row)
        for found in row.sets:
            for i, record in enumerate(found.records):
                yield from _csv_run(table, row, found, i, record)


def _csv_place(table: GeneratorTable, row: GeneratorSeries) -> list[str]:
    texts = (table.problem, table.forget, table.protocol, row.name, row.role)
    return [spreadsheet_text(text) for text in texts]


def _csv_series(table: GeneratorTable, row: GeneratorSeries) -> Iterator[CsvLine]:
    head: CsvLine = [*_csv_place(table, row), "all", "", ""]
    measures = (
        ("hypervolume", "×100", 100.0, row.hypervolume),
        ("delta", "pp", 100.0, row.delta),
        ("seconds", "s", 1.0, row.seconds),
        ("kept change", "pp", 100.0, table.kept_change(row)),
    )
    for measure, unit, scale, value in measures:
        paper = paper_generation(table.forget, row.name, measure) if has_printed(table) else None
        if value is not None:
            printed = scale * paper.mean if paper and row.role == "run" else None
            yield [*head, measure, "", unit, *_csv_estimate(value, scale), printed, ""]
    if row.cup_ratio is not None:
        yield [*head, "ratio to CUP", "", "×", row.cup_ratio, None, None, None, None, paper_ratio(row), ""]
    for dial in row.dials:
        rho = recognised_rho(dial)
        if rho is not None:
            beside = others(dial.others)
            settings = "" if beside == MISSING else spreadsheet_text(beside)
            yield [*head, "spearman recognised", settings, "", *_csv_estimate(rho, 1.0), None, ""]


def _csv_estimate(value: Estimate, scale: float) -> CsvLine:
    ends = [None if end is None else scale * end for end in (value.std, value.low, value.high)]
    return [scale * value.mean, *ends, value.n]


def _csv_run(
    table: GeneratorTable, row: GeneratorSeries, found: GeneratorSet, i: int, record: Record
) -> Iterator[CsvLine]:
    point = record.point
    run = run_label(found.frontier, point) if row.role == "run" else point.label
    state = "diverged" if point.diverged else "shown" if i == found.chosen else ""
    head: CsvLine = [*_csv_place(table, row), found.seed, spreadsheet_text(run), state]

    def line(measure: str, of: str, unit: str, value: float | None, *rest: float | int | None) -> CsvLine:
        low, high, n = (*rest, None, None, None)[:3]
        return [*head, measure, spreadsheet_text(of), unit, value, None, low, high, n, None, ""]

    yield line("seconds", "", "s", point.seconds)
    if (delta := found.delta_of(i)) is not None:
        yield line("delta", "", "pp", 100 * delta)
    scores = generation(point)
    if point.diverged:
        return
    for metric in ("ua", "ra"):
        low, high = scores.interval(metric)
        value = 100 * float(getattr(scores, metric))
        yield line(metric, "", "%", value, 100 * low, 100 * high, _made(scores, forgotten=metric == "ua"))
    yield line("fidelity", f"M = {scores.rescale:g}, {scores.frechet[0].features}", "%", 100 * scores.fidelity)
    yield line("classifier accuracy", "", "%", 100 * scores.classifier_accuracy)
    for frechet in scores.frechet:
        of = f"{frechet.features}, against {frechet.n_reference}"
        yield line("frechet", of, "", frechet.value, None, None, frechet.n)
    for name, value in scores.recognised().items():
        low, high = scores.class_interval(name)
        made = sum(scores.called[scores.asked.index(name)])
        yield line("recognised", str(name), "%", 100 * value, 100 * low, 100 * high, made)


def _made(scores: GenerationScores, *, forgotten: bool) -> int:
    pairs = zip(scores.asked, scores.called, strict=True)
    return sum(sum(row) for name, row in pairs if (name in scores.forgotten) == forgotten)


_CONSOLE_HEADERS = (
    "Method", "UA ↑ (%)", "Kept ↑ (%)", "change (pp)", "FD ↓", "Δ ↓ (pp)", "H ↑ (×100)", "Time ↓ (s)", "× CUP ↓",
    "Diverged ↓",
)  # fmt: skip


def console_tables(table: GeneratorTable) -> list[rich.table.Table]:
    """The series table."""
    lines = [_console_cells(table, row) for row in table.rows]
    return [rich_table(table.title, evaluation_note(table), _CONSOLE_HEADERS, lines)]


def _console_cells(table: GeneratorTable, row: GeneratorSeries) -> list[str]:
    run, first = shown_run(row), table.distances[:1]
    change = table.kept_change(row)
    shares = [_mean(row.shown("ua")), _mean(row.shown("ra")), _mean(change)]
    return [
        row.name if run == MISSING else f"{row.name}\n{run}", *shares,
        shown_distance(row, first[0]).partition(" ")[0] if first else MISSING,
        _mean(row.delta), _mean(row.hypervolume),
        number(row.seconds.mean if row.seconds and row.role != "original" else None, 1), number(row.cup_ratio),
        str(row.diverged),
    ]  # fmt: skip


def _mean(value: Estimate | None) -> str:
    return number(100 * value.mean if value else None)
