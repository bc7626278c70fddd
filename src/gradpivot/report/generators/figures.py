"""Figures of generated samples: one panel per run, all from the same noise, so that a class visibly dissolves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradpivot.report.common.wording import percent
from gradpivot.report.generators.samples import SamplePanel, blank_panel, picture_panel, sample_figure
from gradpivot.report.generators.wording import class_names, run_label
from gradpivot.results import Generators, GeneratorSeries, GeneratorTable, Record, generation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["generator_figures"]


def generator_figures(generators: Generators) -> dict[str, Figure]:
    """Figures of the first seed by name: the first series between original and retrained, and all other series.

    CUP comes first if present. A run without pictures gets a blank panel that says why; a table without any
    pictures gets no figure.

    Raises:
        GradPivotError: if sheets are damaged or differ in shape.
    """
    found: dict[str, Figure] = {}
    for table in generators.tables:
        name = _free(_slug(table.title), found)
        first, *others = table.series
        for part, rows in (("samples", [first]), ("samples-others", others)):
            figure = _figure(table, rows, named=part != "samples")
            if figure is not None:
                found[f"{name}-{part}"] = figure
    return found


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-.") or "table"


def _free(name: str, taken: dict[str, Figure]) -> str:
    """The name, numbered if another table already uses it."""
    count, free = 1, name
    while any(known.startswith(f"{free}-samples") for known in taken):
        count += 1
        free = f"{name}-{count}"
    return free


def _figure(table: GeneratorTable, rows: Sequence[GeneratorSeries], *, named: bool) -> Figure | None:
    """Original, the runs, retrained."""
    seed = table.seeds[0]
    runs = [entry for row in rows for entry in _runs(row, seed, named=named)]
    pictures = next((record.pictures for record, _ in runs if record.pictures), None)
    if pictures is None:
        return None
    original, retrained = table.original_at(seed), table.retrained_at(seed)
    entries = [
        *([(original, "Original")] if original else []),
        *runs,
        *([(retrained, "Retrained")] if retrained else []),
    ]
    forgotten = sum(name in table.forgotten for name in pictures.rows)
    return sample_figure(_panels(table, entries), [str(name) for name in pictures.rows], forgotten)


def _runs(row: GeneratorSeries, seed: int, *, named: bool) -> list[tuple[Record, str]]:
    return [
        (record, f"{row.name}, {run}" if named else run)
        for found in row.sets
        if found.seed == seed
        for record in found.records
        for run in [run_label(found.frontier, record.point)]
    ]


def _panels(table: GeneratorTable, entries: Sequence[tuple[Record, str]]) -> list[SamplePanel]:
    drawn = [
        (record, title, picture_panel(record.pictures, title, _caption(table, record)) if record.pictures else None)
        for record, title in entries
    ]
    like = next(panel for _, _, panel in drawn if panel)
    return [
        panel or blank_panel(like, title, "diverged" if record.point.diverged else "no pictures stored")
        for record, title, panel in drawn
    ]


def _caption(table: GeneratorTable, record: Record) -> str:
    scores = generation(record.point)
    still, kept = percent(1 - scores.ua, 1), percent(scores.ra, 1)
    return f"{class_names(table.forgotten)}: {still} % recognised\nkept classes: {kept} %"
