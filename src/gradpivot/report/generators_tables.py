"""Generators compared as tables: console, Markdown, CSV and JSON, the paper's values beside ours."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gradpivot.evaluate.generation_scores import Frechet, GenerationScores
from gradpivot.frontier.estimate import Estimate, estimate
from gradpivot.frontier.generators import (
    Generators,
    GeneratorSeries,
    GeneratorSet,
    GeneratorTable,
    generation,
    recognised_rho,
)
from gradpivot.frontier.paper import GENERATED, paper_generation
from gradpivot.frontier.record import Record
from gradpivot.report.generators_wording import (
    distance_at,
    distance_head,
    distance_words,
    judged_words,
    over_seeds,
    rho_words,
    run_words,
    sentences,
    shown_run,
    with_interval,
)
from gradpivot.report.standings_tables import Cell, Grid
from gradpivot.report.standings_wording import others
from gradpivot.report.tables import LOST, markdown_cell, markdown_grid, rich_table, spreadsheet_text
from gradpivot.report.wording import MISSING, number, percent

if TYPE_CHECKING:
    from rich.console import Group

__all__ = [
    "CSV_HEADS", "generator_grids", "generators_console", "generators_csv", "generators_json", "generators_markdown",
]  # fmt: skip


def generator_grids(table: GeneratorTable) -> list[Grid]:
    """Everything that is said of a table: the series, the paper, all runs."""
    return [_series(table), *_beside(table), _runs(table)]


def _series(table: GeneratorTable) -> Grid:
    heads = (
        "Series", "Shown run", "Δ ↓ (pp)", "H ↑ (×100)", "ρ ↓ (γ, still recognised)",
        "UA ↑ (%)", "Kept recognised ↑ (%)", "to the original (pp)", *map(distance_head, table.distances),
        "Time a run ↓ (s)", "× CUP ↓", "Runs", "Diverged ↓",
    )  # fmt: skip
    lines = tuple(tuple(map(Cell, _series_cells(table, row))) for row in table.rows)
    return Grid(name="series", title="Series", heads=heads, lines=lines, caption=_caption(table), texts=2)


def _series_cells(table: GeneratorTable, row: GeneratorSeries) -> list[str]:
    if all(s.shown.diverged for s in row.whole):
        shown = [LOST] * (3 + len(table.distances))
    else:
        shown = [over_seeds(row, "ua"), over_seeds(row, "ra"), _hundred(table.kept_change(row))]
        shown += [_distance(row, kind) for kind in table.distances]
    return [
        row.name, shown_run(row), _hundred(row.delta), _hundred(row.hypervolume), rho_words(row), *shown,
        # Nothing was run for the original.
        _spread(row.seconds) if row.role != "original" else MISSING, number(row.cup_ratio),
        str(row.runs), str(row.diverged),
    ]  # fmt: skip


def _hundred(value: Estimate | None) -> str:
    return _spread(value, 100)


def _spread(value: Estimate | None, scale: float = 1) -> str:
    """The mean, and in brackets the standard deviation over seeds where there are several."""
    if value is None:
        return MISSING
    shown = number(scale * value.mean)
    return shown if value.std is None else f"{shown} ({number(scale * value.std)})"


def _distance(row: GeneratorSeries, kind: Frechet) -> str:
    """The chosen runs' distance, if all of them have it."""
    values = [distance_at(generation(s.shown), kind) for s in row.whole]
    found = None if None in values else estimate(values)
    if found is None:
        return MISSING
    return distance_words(found.mean) + (f" ({distance_words(found.std)})" if found.std is not None else "")


def _caption(table: GeneratorTable) -> str:
    seeds = len(table.seeds)
    shown = "nearest to the retrained model" if table.retrained else "with the largest fidelity + UA"
    if seeds == 1:
        over = f"One seed ({table.seeds[0]}), which decides no ranking; intervals are Wilson's, by the images alone."
    else:
        over = (
            f"Means over {seeds} seeds and, in brackets, their standard deviation; "
            "intervals are Student's over seeds."
        )
    return " ".join(
        (
            f"The shown run is that {shown}. UA is the share of the forgotten class's images that is not recognised as "
            "such, 'kept recognised' the share of the other classes' that is, beside it the difference to the "
            "original's.",
            "Δ (to the retrained model) and H (of all runs) are on (fidelity, UA), per seed and then averaged.",
            "ρ is Spearman's of γ and 1 − UA along γ, all else equal: −1 is a dial that turns evenly.",
            judged_words(table),
            over,
            "Diverged runs count as zeros, and not at all in the time a run, which is that of the unlearning call with "
            "its preparation.",
        )
    )


def _beside(table: GeneratorTable) -> list[Grid]:
    """The paper's Δ, H and run time, where it has the series."""
    known = [row for row in table.series if paper_generation("", row.name, "seconds")]
    if not known:
        return []
    heads = (
        "Series",
        "Δ ↓ (pp)",
        "paper",
        "H ↑ (×100)",
        "paper",
        "Time a run ↓ (s)",
        "paper",
        "× CUP ↓",
        "paper",
    )
    lines = tuple(
        tuple(map(Cell, (
            row.name, _hundred(row.delta), _printed(table, row, "delta"), _hundred(row.hypervolume),
            _printed(table, row, "hypervolume"), _spread(row.seconds), _printed(table, row, "seconds"),
            number(row.cup_ratio), number(_paper_ratio(row)),
        )))
        for row in known
    )  # fmt: skip
    if _has_class(table):
        said = "Its M, sampler, features' N and machine are not given or not ours."
    else:
        said = (
            f"Its values are of {', '.join(GENERATED)} out of CIFAR-10, from the least to the largest: another problem "
            f"than ours, for orientation only."
        )
    return [
        Grid(
            name="paper", title="Beside the paper on CIFAR-10", heads=heads, lines=lines,
            caption=f"Paper: arXiv:2510.19226, one seed. {said} What carries over is the ratio of run times.",
        )
    ]  # fmt: skip


def _has_class(table: GeneratorTable) -> bool:
    return table.dataset is not None and paper_generation(table.forget, "CUP", "delta") is not None


def _printed(table: GeneratorTable, row: GeneratorSeries, measure: str) -> str:
    scale = 1.0 if measure == "seconds" else 100.0
    if measure == "seconds" or _has_class(table):
        value = paper_generation(table.forget, row.name, measure)
        return number(scale * value.mean if value else None)
    values = [paper_generation(str(c), row.name, measure) for c in range(len(GENERATED))]
    found = sorted(scale * value.mean for value in values if value)
    return f"{number(found[0])} to {number(found[-1])}" if found else MISSING


def _paper_ratio(row: GeneratorSeries) -> float | None:
    own, cup = (paper_generation("", name, "seconds") for name in (row.name, "CUP"))
    return own.mean / cup.mean if own and cup else None


def _runs(table: GeneratorTable) -> Grid:
    classes = _classes(table)
    heads = (
        "Series", "Run", "Seed", "UA ↑ (%)", "Kept recognised ↑ (%)", "Fidelity ↑ (%)", "Δ ↓ (pp)",
        *map(distance_head, table.distances), "Time ↓ (s)",
        *(f"{name}{' ↓ forgotten' if name in table.forgotten else ''} (%)" for name in classes),
    )  # fmt: skip
    lines = tuple(
        tuple(map(Cell, _run_cells(table, row, found, i, classes)))
        for row in table.rows
        for found in row.sets
        for i in range(len(found.records))
    )
    return Grid(
        name="runs", title="All runs", heads=heads, lines=lines, texts=2,
        caption="Shares with 95 % Wilson intervals, by the number of images. The last columns are, class by class, the "
        f"share of its images that is recognised as such. {judged_words(table)}",
    )  # fmt: skip


def _classes(table: GeneratorTable) -> list[int]:
    """The forgotten classes, then the others that were asked for."""
    asked = {name for scores in table.finite for name in scores.asked}
    return [*table.forgotten, *sorted(asked - set(table.forgotten))]


def _run_cells(
    table: GeneratorTable, row: GeneratorSeries, found: GeneratorSet, i: int, classes: list[int]
) -> list[str]:
    point = found.frontier.points[i]
    name = [row.name, run_words(found.frontier, point) if row.role == "run" else MISSING, str(found.seed)]
    delta = found.delta_of(i)
    if point.diverged:
        lost = [LOST] * 3 + [number(_scaled(delta))] + [LOST] * len(table.distances)
        return [*name, *lost, number(point.seconds), *([LOST] * len(classes))]
    scores = generation(point)
    shares = scores.recognised()
    return [
        *name, with_interval(scores, "ua"), with_interval(scores, "ra"), percent(scores.fidelity),
        number(_scaled(delta)), *(distance_words(distance_at(scores, kind)) for kind in table.distances),
        number(point.seconds or None), *(percent(shares.get(c)) for c in classes),
    ]  # fmt: skip


def _scaled(value: float | None) -> float | None:
    return None if value is None else 100 * value


def generators_markdown(generators: Generators) -> str:
    """All tables as one Markdown page."""
    lines = ["# Generators", ""]
    lines += [f"- {markdown_cell(note)}" for note in generators.notes] + [""] * bool(generators.notes)
    for table in generators.tables:
        lines += [f"## {markdown_cell(table.title)}", ""]
        lines += [f"- {markdown_cell(text)}" for text in sentences(table)] + [""]
        if table.notes:
            lines += ["Notes:", "", *(f"- {markdown_cell(note)}" for note in table.notes), ""]
        for grid in generator_grids(table):
            cells = [[markdown_cell(cell.text) for cell in line] for line in grid.lines]
            lines += [f"### {markdown_cell(grid.title)}", "", markdown_grid(grid.heads, cells, grid.texts), "",
                      markdown_cell(grid.caption), ""]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"


CSV_HEADS = (
    "problem", "forget", "protocol", "series", "role", "seed", "run", "state", "measure", "of", "unit", "value", "std",
    "low", "high", "n", "paper", "note",
)  # fmt: skip


def generators_csv(generators: Generators) -> str:
    """Tidy: one line per table, series, run and measure; the seed is ``all`` for what is averaged over seeds.

    Percent, percentage points, ×100 and seconds as the column ``unit`` says. ``of`` names the class of a recognised
    share, or the features of a Fréchet distance. ``low`` and ``high`` are 95 % intervals: Wilson's by the number ``n``
    of images for a run, Student's over ``n`` seeds for a series. Text cannot be taken for a formula. Notes on the whole
    come last, a line each with the role ``note`` and nothing but the last column.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEADS)
    for table in generators.tables:
        for row in table.rows:
            writer.writerows(_csv_series(table, row))
            for found in row.sets:
                for i, record in enumerate(found.records):
                    writer.writerows(_csv_run(table, row, found, i, record))
    for note in generators.notes:
        told = ["note" if column == "role" else "" for column in CSV_HEADS[:-1]]
        writer.writerow([*told, spreadsheet_text(note)])
    return text.getvalue()


Line = list[str | float | int | None]


def _csv_place(table: GeneratorTable, row: GeneratorSeries) -> list[str]:
    texts = (table.problem, table.forget, table.protocol, row.name, row.role)
    return [spreadsheet_text(text) for text in texts]


def _csv_series(table: GeneratorTable, row: GeneratorSeries) -> Iterator[Line]:
    head: Line = [*_csv_place(table, row), "all", "", ""]
    measures = (
        ("hypervolume", "×100", 100.0, row.hypervolume),
        ("delta", "pp", 100.0, row.delta),
        ("seconds", "s", 1.0, row.seconds),
        ("kept change", "pp", 100.0, table.kept_change(row)),
    )
    for measure, unit, scale, value in measures:
        paper = paper_generation(table.forget, row.name, measure) if _has_class(table) else None
        if value is not None:
            printed = scale * paper.mean if paper and row.role == "run" else None
            yield [*head, measure, "", unit, *_csv_estimate(value, scale), printed, ""]
    if row.cup_ratio is not None:
        yield [*head, "ratio to CUP", "", "×", row.cup_ratio, None, None, None, None, _paper_ratio(row), ""]
    for dial in row.dials:
        rho = recognised_rho(dial)
        if rho is not None:
            beside = others(dial.others)
            told = "" if beside == MISSING else spreadsheet_text(beside)
            yield [*head, "spearman recognised", told, "", *_csv_estimate(rho, 1.0), None, ""]


def _csv_estimate(value: Estimate, scale: float) -> Line:
    ends = [None if end is None else scale * end for end in (value.std, value.low, value.high)]
    return [scale * value.mean, *ends, value.n]


def _csv_run(
    table: GeneratorTable, row: GeneratorSeries, found: GeneratorSet, i: int, record: Record
) -> Iterator[Line]:
    point = record.point
    run = run_words(found.frontier, point) if row.role == "run" else point.label
    state = "diverged" if point.diverged else "shown" if i == found.chosen else ""
    head: Line = [*_csv_place(table, row), found.seed, spreadsheet_text(run), state]

    def line(measure: str, of: str, unit: str, value: float | None, *rest: float | int | None) -> Line:
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
    yield line(
        "fidelity", f"M = {scores.rescale:g}, {scores.frechet[0].features}", "%", 100 * scores.fidelity
    )
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


def generators_json(generators: Generators) -> str:
    """Everything but the pictures, fractions and seconds, under the schema ``gradpivot.generators/1``."""
    return json.dumps(generators.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def generators_console(generators: Generators) -> Group:
    """The series of all tables for the terminal, 80 columns wide, with a sentence each and what is missing."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(note, style="yellow") for note in generators.notes]
    for table in generators.tables:
        lines = [_console_cells(table, row) for row in table.rows]
        parts += [rich_table(table.title, judged_words(table), _CONSOLE, lines), Text()]
        parts += [Text(text) for text in sentences(table)] + [Text()]
        parts += [Text(note, style="yellow") for note in table.notes]
    return Group(*parts)


_CONSOLE = ("Method", "UA ↑ (%)", "Kept ↑ (%)", "to original (pp)", "FD ↓", "Δ ↓ (pp)", "H ↑ (×100)", "Time ↓ (s)",
            "× CUP ↓", "Diverged ↓")  # fmt: skip


def _console_cells(table: GeneratorTable, row: GeneratorSeries) -> list[str]:
    run, first = shown_run(row), table.distances[:1]
    change = table.kept_change(row)
    shares = [_mean(row.shown("ua")), _mean(row.shown("ra")), _mean(change)]
    return [
        row.name if run == MISSING else f"{row.name}\n{run}", *shares,
        _distance(row, first[0]).partition(" ")[0] if first else MISSING,
        _mean(row.delta), _mean(row.hypervolume),
        number(row.seconds.mean if row.seconds and row.role != "original" else None, 1), number(row.cup_ratio),
        str(row.diverged),
    ]  # fmt: skip


def _mean(value: Estimate | None) -> str:
    return number(100 * value.mean if value else None)
