"""Tables of a comparison for console, Markdown and CSV; every column header has direction and unit."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gradpivot.evaluate import Metric, Scored, Scores, headline_metrics, scored_metrics, standing_metrics
from gradpivot.report.common.wording import (  # fmt: skip
    MISSING,
    caption,
    column_head,
    has_mia,
    is_number,
    judged_by_gap,
    number,
    scaled,
    setting,
    symbol,
)
from gradpivot.results import Comparison, Frontier, Point, determined_metrics, distance

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "Row",
    "console_table",
    "is_determined",
    "markdown",
    "markdown_cell",
    "markdown_grid",
    "method_headers",
    "nearest",
    "point_delta",
    "point_headers",
    "point_rows",
    "point_table",
    "rich_table",
    "row_cells",
    "rows",
    "spreadsheet_text",
    "with_reference",
    "write_csv",
]  # fmt: skip

DIVERGED_MARK = "✗"
"""Shown for the scores of a diverged run, which counts as zeros but was not measured."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One table row: the original, the retrained model, or a method at its best run.

    Attributes:
        name: Name of the model or method.
        kind: Kind of split.
        role: ``original``, ``retrained`` or ``method``.
        setting: Knob value of the shown run.
        point: The shown run: the closest to the retrained model or, without one, the non-dominated run with the
            largest sum of scores. None if neither can be computed.
        delta: Δ as a fraction, or None without a reference model.
        hypervolume: H as a fraction, or None if it cannot be computed.
        hypervolume_without_mia: Hypervolume over RA, UA and TA.
        runs: Number of runs.
        diverged: Number of diverged runs.
        seconds: Mean time per run, or None.
    """

    name: str
    kind: str
    role: Literal["original", "retrained", "method"]
    setting: str = ""
    point: Point | None
    delta: float | None
    hypervolume: float | None
    hypervolume_without_mia: float | None
    runs: int
    diverged: int
    seconds: float | None

    @property
    def scores(self) -> Scores | None:
        """Scores of the shown run; None if there is no such run or it diverged."""
        return self.point.classification if self.point and not self.point.diverged else None


def rows(comparison: Comparison) -> list[Row]:
    """Rows for the original, the retrained model (if any) and each method."""
    kind = comparison.kind
    found = [_model_row("original", comparison.original, comparison, kind)]
    if comparison.retrained:
        found.append(_model_row("retrained", comparison.retrained, comparison, kind))
    return found + [_method_row(frontier, comparison) for frontier in comparison.frontiers]


def with_reference(frontier: Frontier, comparison: Comparison) -> Frontier:
    """The frontier, with the comparison's retrained model as reference if it has none."""
    if frontier.reference is not None or comparison.retrained is None:
        return frontier
    return replace(frontier, reference=comparison.retrained.classification)


def measurable(frontier: Frontier) -> bool:
    """Whether H and dominance can be computed: complete scores, and a reference if the kind needs one."""
    whole = all(is_number(getattr(p.scores, m)) for p in frontier.points for m in standing_metrics(frontier.kind))
    return whole and (not judged_by_gap(frontier.kind) or frontier.reference is not None)


def nearest(frontier: Frontier) -> Point | None:
    """The run shown for a method: closest to the reference, or the non-dominated run with the largest sum."""
    if not frontier.points or not measurable(frontier):
        return None
    if frontier.reference is None:
        return max(frontier.nondominated(), key=lambda p: sum(p.scores.vector()), default=frontier.points[0])
    metrics = frontier.metrics
    ideal = frontier.reference.vector(metrics)
    # A diverged run counts as zeros and may be the closest; a finite run wins a tie.
    return min(frontier.points, key=lambda p: (distance(p.scores.vector(metrics), ideal), p.diverged is not None))


def point_delta(point: Point, reference: Scored | None, kind: str) -> float | None:
    """Distance of one run from the reference in the metrics that are determined for it, as a fraction."""
    if reference is None or not all(is_number(getattr(point.scores, m)) for m in standing_metrics(kind)):
        return None
    metrics = determined_metrics(standing_metrics(kind), reference)
    return distance(point.scores.vector(metrics), reference.vector(metrics))


def _model_row(role: Literal["original", "retrained"], point: Point, comparison: Comparison, kind: str) -> Row:
    alone = with_reference(Frontier(name=role, method=None, points=[point], kind=kind), comparison)
    known = measurable(alone)
    return Row(
        name=role, kind=kind, role=role, point=point, delta=point_delta(point, alone.reference, kind),
        hypervolume=alone.hypervolume() if known else None,
        hypervolume_without_mia=alone.hypervolume(standing_metrics(kind, attacks=False)) if known else None,
        runs=1, diverged=int(bool(point.diverged)), seconds=point.seconds or None,
    )  # fmt: skip


def _method_row(frontier: Frontier, comparison: Comparison) -> Row:
    frontier = with_reference(frontier, comparison)
    known, point, runs = measurable(frontier), nearest(frontier), len(frontier.points)
    return Row(
        name=frontier.name, kind=frontier.kind, role="method", point=point,
        setting=setting(frontier, point) if point else "",
        delta=point_delta(point, frontier.reference, frontier.kind) if point else None,
        hypervolume=frontier.hypervolume() if known else None,
        hypervolume_without_mia=frontier.hypervolume(standing_metrics(frontier.kind, attacks=False)) if known else None,
        runs=runs, diverged=sum(p.diverged is not None for p in frontier.points),
        seconds=sum(p.seconds for p in frontier.points) / runs if runs else None,
    )  # fmt: skip


def method_headers(comparison: Comparison) -> list[str]:
    """Column headers of the methods table."""
    scores, without = _score_headings(comparison), ["H without MIA ↑ (×100)"] if has_mia(comparison.kind) else []
    return ["Model", "Shown run", *scores, "Δ ↓ (pp)", "H ↑ (×100)", *without, "Runs", "Diverged ↓", "Time ↓ (s)"]


def point_headers(comparison: Comparison) -> list[str]:
    """Column headers of the runs table."""
    return ["Model", "Run", *_score_headings(comparison), "Δ ↓ (pp)", "Time ↓ (s)", "State"]


def _score_headings(comparison: Comparison) -> list[str]:
    return [column_head(metric, comparison.kind) for metric in headline_metrics(comparison.kind)]


def row_cells(row: Row) -> list[str]:
    """Cells of one row, in the order of :func:`method_headers`."""
    volumes = [row.hypervolume, *([row.hypervolume_without_mia] if has_mia(row.kind) else [])]
    return [
        row.name, row.setting or MISSING, *_score_cells(row.point, row.kind), number(_scaled(row.delta)),
        *(number(_scaled(volume)) for volume in volumes),
        str(row.runs), str(row.diverged), number(row.seconds),
    ]  # fmt: skip


def point_rows(comparison: Comparison) -> Iterator[tuple[str, str, Point, list[str]]]:
    """Every run as (model, run, point, cells), the original and the retrained model first."""
    reference, kind = comparison.retrained.classification if comparison.retrained else None, comparison.kind
    for name, alone in (("original", comparison.original), ("retrained", comparison.retrained)):
        if alone is not None:
            yield name, alone.label, alone, _point_cells(name, alone.label, alone, reference, "", kind)
    for frontier in (with_reference(f, comparison) for f in comparison.frontiers):
        best = frontier.nondominated() if measurable(frontier) else []
        for point in frontier.points:
            run = setting(frontier, point)
            # By identity: two runs may have equal settings and scores.
            state = "Pareto" if any(point is p for p in best) else "dominated" if best else ""
            yield (frontier.name, run, point, _point_cells(frontier.name, run, point, frontier.reference, state, kind))


def _point_cells(name: str, run: str, point: Point, reference: Scored | None, state: str, kind: str) -> list[str]:
    if point.diverged:
        reason = point.diverged.get("reason") or "not finite"
        state = f"diverged at step {point.diverged.get('step', '?')}: {reason}"
    delta = number(_scaled(point_delta(point, reference, kind)))
    return [name, run, *_score_cells(point, kind), delta, number(point.seconds or None), state or MISSING]


def _score_cells(point: Point | None, kind: str) -> list[str]:
    if point is None or point.diverged:
        return [MISSING if point is None else DIVERGED_MARK] * len(headline_metrics(kind))
    return [_score_cell(point.classification, metric) for metric in headline_metrics(kind)]


def _score_cell(scores: Scores, metric: Metric) -> str:
    text = number(scaled(metric, getattr(scores, metric.name)))
    return text if is_determined(scores, metric) else f"{text}*"


def is_determined(scores: Scores, metric: Metric) -> bool:
    """Whether the attack behind a value is determined; True for a missing value."""
    return not is_number(getattr(scores, metric.name)) or bool(getattr(scores, f"{metric.name}_determined", True))


def _scaled(value: float | None) -> float | None:
    return None if value is None else 100 * value


def console_table(comparison: Comparison) -> Table:
    """Methods table for an 80-column terminal."""
    lines = []
    for name, run, *numbers in map(row_cells, rows(comparison)):
        lines.append([name if run == MISSING else f"{name}\n{run}", *numbers])
    # The caption explains the arrow.
    headers = [head.replace("→ retrained", "→") for head in method_headers(comparison)[2:]]
    return rich_table(comparison.title, caption(comparison), ["Model", *headers], lines)


def point_table(comparison: Comparison) -> Table:
    """All runs of all methods, for the terminal."""
    return rich_table(
        comparison.title,
        caption(comparison),
        point_headers(comparison),
        [cells for *_, cells in point_rows(comparison)],
    )


def rich_table(title: str, caption: str, headers: Sequence[str], lines: Sequence[Sequence[str | Text]]) -> Table:
    """A compact table for the terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # Text, not markup: a class may be called "[red]".
    table = Table(title=Text(title), caption=Text("\n" + caption), caption_justify="left",
                  box=box.SIMPLE_HEAD, show_edge=False, padding=0, collapse_padding=True)  # fmt: skip
    for head in headers:
        text = head in ("Model", "Method", "Run", "State")
        # One word per line; only text columns wrap, because a cut number is wrong.
        short = head.replace("Diverged", DIVERGED_MARK).replace("without", "w/o").replace("-", " ").replace(" ", "\n")
        table.add_column(
            Text(short), justify="left" if text else "right", no_wrap=not text, min_width=8 if text else None
        )
    for line in lines:
        cells = [cell if isinstance(cell, Text) else Text(cell) for cell in line]
        table.add_row(*cells, style="dim" if DIVERGED_MARK in line else None)
    return table


def markdown(comparison: Comparison) -> str:
    """Methods table in Markdown, followed by its caption."""
    lines = [[markdown_cell(cell) for cell in row_cells(row)] for row in rows(comparison)]
    table = markdown_grid(method_headers(comparison), lines, texts=2)
    return f"{table}\n\n{markdown_cell(caption(comparison))}\n"


def markdown_grid(headers: Sequence[str], lines: Sequence[Sequence[str]], texts: int = 1) -> str:
    """A Markdown table of Markdown cells; columns after the first ``texts`` are right-aligned."""
    rule = ["---" if i < texts else "---:" for i in range(len(headers))]
    named = [markdown_cell(head) for head in headers]
    return "\n".join(f"| {' | '.join(line)} |" for line in (named, rule, *lines))


def markdown_cell(text: str) -> str:
    """Escape text for a Markdown table cell, on one line."""
    for plain, escaped in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("*", "\\*"), ("`", "\\`")):
        text = text.replace(plain, escaped)
    return " ".join(text.split())


def write_csv(comparison: Comparison, path: str | Path) -> None:
    """Write one line per run, in percent with 95 % Wilson intervals, safe to open in a spreadsheet.

    The file starts with a byte-order mark: spreadsheets detect UTF-8 only by it.
    """
    headers = ["model", "run", "knob", "value", "state"]
    for metric in scored_metrics(comparison.kind):
        headers.append(column_head(metric, comparison.kind))
        if metric.share_of:
            headers += [f"{metric.symbol} low ({metric.unit})", f"{metric.symbol} high ({metric.unit})"]
        if metric.may_be_undetermined:
            headers.append(f"{metric.symbol} determined")
    headers += ["Δ ↓ (pp)", "Time ↓ (s)"]
    with Path(path).open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(headers)
        writer.writerows(_csv_lines(comparison))


def _csv_lines(comparison: Comparison) -> Iterator[list[str | float | None]]:
    knobs = {id(point): symbol(f.knob) for f in comparison.frontiers for point in f.points}
    references = {id(p): with_reference(f, comparison).reference for f in comparison.frontiers for p in f.points}
    fallback = comparison.retrained.classification if comparison.retrained else None
    for name, _, point, cells in point_rows(comparison):
        knob = knobs.get(id(point), "")
        line: list[str | float | None] = [
            spreadsheet_text(name),
            spreadsheet_text(point.label),
            spreadsheet_text(knob),
            point.knob,
        ]
        line.append(spreadsheet_text(cells[-1]))
        for metric in scored_metrics(comparison.kind):
            line.append(scaled(metric, getattr(point.scores, metric.name)))
            if metric.share_of:
                line += map(_scaled, _interval(point, metric.name))
            if metric.may_be_undetermined:
                line.append("yes" if is_determined(point.classification, metric) else "no")
        delta = point_delta(point, references.get(id(point), fallback), comparison.kind)
        yield [*line, _scaled(delta), point.seconds]


def _interval(point: Point, metric: str) -> tuple[float | None, float | None]:
    known = not point.diverged and is_number(getattr(point.scores, metric))
    return point.scores.interval(metric) if known else (None, None)


def spreadsheet_text(text: str) -> str:
    """Escape a text cell so that no spreadsheet reads it as a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
