"""Tables of a comparison: console, Markdown and CSV, with directions and units in every head."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gradpivot.evaluate import Metric, Scored, Scores, scored_metrics, standing_metrics
from gradpivot.report.common.wording import (  # fmt: skip
    MISSING,
    caption,
    column_head,
    gap_kind,
    is_number,
    kind_of,
    number,
    scaled,
    setting,
    symbol,
)
from gradpivot.results import Comparison, Frontier, Point, distance

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "Row", "console_table", "headings", "is_determined", "judged", "markdown", "markdown_cell", "markdown_grid",
    "nearest", "point_delta", "point_headings", "point_rows", "point_table", "rich_table", "row_cells", "rows",
    "spreadsheet_text", "write_csv",
]  # fmt: skip

LOST = "✗"
"""What stands for the scores of a diverged run: it counts with zeros, but has measured none."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: the original, the retrained model, or a method at its best run.

    Attributes:
        name: What the line is called.
        role: Which of the three it is.
        setting: Where along the method's knob the shown run lies.
        point: The shown run: the nearest to the retrained model, without one the non-dominated run with the
            largest sum; None if there is nothing to choose by.
        delta: Δ as a fraction, or None without a reference.
        hypervolume: H as a fraction, or None where it cannot be judged.
        hypervolume_without_mia: The same over RA, UA and TA.
        runs: How many settings were run.
        diverged: How many of them diverged.
        seconds: Mean per run, or None.
    """

    name: str
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
        """The shown run's scores; None if there is none or it diverged."""
        return self.point.classification if self.point and not self.point.diverged else None


def rows(comparison: Comparison) -> list[Row]:
    """One row for the original, one for the retrained model if there is one, and one for each method."""
    kind = kind_of(comparison)
    found = [_model_row("original", comparison.original, comparison, kind)]
    if comparison.retrained:
        found.append(_model_row("retrained", comparison.retrained, comparison, kind))
    return found + [_method_row(frontier, comparison) for frontier in comparison.frontiers]


def judged(frontier: Frontier, comparison: Comparison) -> Frontier:
    """The frontier with the comparison's retrained model as its reference where it has none itself."""
    if frontier.reference is not None or comparison.retrained is None:
        return frontier
    return replace(frontier, reference=comparison.retrained.classification)


def measurable(frontier: Frontier) -> bool:
    """Whether H and dominance can be computed: whole scores, and a reference where the kind needs one."""
    whole = all(is_number(getattr(p.scores, m)) for p in frontier.points for m in standing_metrics())
    return whole and (not gap_kind(frontier.kind) or frontier.reference is not None)


def nearest(frontier: Frontier) -> Point | None:
    """The run that stands for the method: nearest to the reference, else the best non-dominated sum."""
    if not frontier.points or not measurable(frontier):
        return None
    if frontier.reference is None:
        return max(frontier.nondominated(), key=lambda p: sum(p.scores.vector()), default=frontier.points[0])
    ideal = frontier.reference.vector()
    # A diverged run counts as zeros and may even be the nearest; at equal distance a finite one is shown.
    return min(frontier.points, key=lambda p: (distance(p.scores.vector(), ideal), p.diverged is not None))


def point_delta(point: Point, reference: Scored | None) -> float | None:
    """The distance of one run to the reference, as a fraction."""
    if reference is None or not all(is_number(getattr(point.scores, m)) for m in standing_metrics()):
        return None
    return distance(point.scores.vector(), reference.vector())


def _model_row(role: Literal["original", "retrained"], point: Point, comparison: Comparison, kind: str) -> Row:
    alone = judged(Frontier(name=role, method=None, points=[point], kind=kind), comparison)
    known = measurable(alone)
    return Row(
        name=role, role=role, point=point, delta=point_delta(point, alone.reference),
        hypervolume=alone.hypervolume() if known else None,
        hypervolume_without_mia=alone.hypervolume(standing_metrics(attacks=False)) if known else None,
        runs=1, diverged=int(bool(point.diverged)), seconds=point.seconds or None,
    )  # fmt: skip


def _method_row(frontier: Frontier, comparison: Comparison) -> Row:
    frontier = judged(frontier, comparison)
    known, point, runs = measurable(frontier), nearest(frontier), len(frontier.points)
    return Row(
        name=frontier.name, role="method", point=point,
        setting=setting(frontier, point) if point else "",
        delta=point_delta(point, frontier.reference) if point else None,
        hypervolume=frontier.hypervolume() if known else None,
        hypervolume_without_mia=frontier.hypervolume(standing_metrics(attacks=False)) if known else None,
        runs=runs, diverged=sum(p.diverged is not None for p in frontier.points),
        seconds=sum(p.seconds for p in frontier.points) / runs if runs else None,
    )  # fmt: skip


def headings(comparison: Comparison) -> list[str]:
    """The heads of the methods' table, each with direction and unit."""
    scores = _score_headings(comparison)
    return ["Model", "Shown run", *scores, "Δ ↓ (pp)", "H ↑ (×100)", "H without MIA ↑ (×100)", "Runs",
            "Diverged ↓", "Time ↓ (s)"]  # fmt: skip


def point_headings(comparison: Comparison) -> list[str]:
    """The heads of the runs' table, each with direction and unit."""
    return ["Model", "Run", *_score_headings(comparison), "Δ ↓ (pp)", "Time ↓ (s)", "State"]


def _score_headings(comparison: Comparison) -> list[str]:
    return [column_head(metric, kind_of(comparison)) for metric in scored_metrics()]


def row_cells(row: Row) -> list[str]:
    """The cells of one line, in the order of :func:`headings`."""
    return [
        row.name, row.setting or MISSING, *_score_cells(row.point), number(_scaled(row.delta)),
        number(_scaled(row.hypervolume)), number(_scaled(row.hypervolume_without_mia)),
        str(row.runs), str(row.diverged), number(row.seconds),
    ]  # fmt: skip


def point_rows(comparison: Comparison) -> Iterator[tuple[str, str, Point, list[str]]]:
    """Every run as (model, run, point, cells), the original and the retrained model first."""
    reference = comparison.retrained.classification if comparison.retrained else None
    for name, alone in (("original", comparison.original), ("retrained", comparison.retrained)):
        if alone is not None:
            yield name, alone.label, alone, _point_cells(name, alone.label, alone, reference, "")
    for frontier in (judged(f, comparison) for f in comparison.frontiers):
        best = frontier.nondominated() if measurable(frontier) else []
        for point in frontier.points:
            run = setting(frontier, point)
            # By identity: two runs with the same settings and scores are still two runs.
            state = "Pareto" if any(point is p for p in best) else "dominated" if best else ""
            yield (frontier.name, run, point, _point_cells(frontier.name, run, point, frontier.reference, state))


def _point_cells(name: str, run: str, point: Point, reference: Scored | None, state: str) -> list[str]:
    if point.diverged:
        reason = point.diverged.get("reason") or "not finite"
        state = f"diverged at step {point.diverged.get('step', '?')}: {reason}"
    delta = number(_scaled(point_delta(point, reference)))
    return [name, run, *_score_cells(point), delta, number(point.seconds or None), state or MISSING]


def _score_cells(point: Point | None) -> list[str]:
    if point is None or point.diverged:
        return [MISSING if point is None else LOST] * len(scored_metrics())
    return [_score_cell(point.classification, metric) for metric in scored_metrics()]


def _score_cell(scores: Scores, metric: Metric) -> str:
    text = number(scaled(metric, getattr(scores, metric.name)))
    return text if is_determined(scores, metric) else f"{text}*"


def is_determined(scores: Scores, metric: Metric) -> bool:
    """Whether a value is no noise; what was not measured is none either."""
    return not is_number(getattr(scores, metric.name)) or bool(getattr(scores, f"{metric.name}_determined", True))


def _scaled(value: float | None) -> float | None:
    return None if value is None else 100 * value


def console_table(comparison: Comparison) -> Table:
    """The methods side by side, for the terminal; twelve columns that fit 80 characters."""
    lines = []
    for name, run, *numbers in map(row_cells, rows(comparison)):
        lines.append([name if run == MISSING else f"{name}\n{run}", *numbers])
    return rich_table(comparison.title, caption(comparison), ["Model", *headings(comparison)[2:]], lines)


def point_table(comparison: Comparison) -> Table:
    """Every run of every method, for the terminal."""
    return rich_table(
        comparison.title,
        caption(comparison),
        point_headings(comparison),
        [cells for *_, cells in point_rows(comparison)],
    )


def rich_table(title: str, caption: str, heads: Sequence[str], lines: Sequence[Sequence[str | Text]]) -> Table:
    """A table for the terminal, as narrow as it can be."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # Text, not markup: a class called "[red]" must print as it is.
    table = Table(title=Text(title), caption=Text("\n" + caption), caption_justify="left",
                  box=box.SIMPLE_HEAD, show_edge=False, padding=0, collapse_padding=True)  # fmt: skip
    for head in heads:
        text = head in ("Model", "Method", "Run", "State")
        # One word a line, and only text may wrap: what is cut off a number would be wrong.
        short = head.replace("Diverged", LOST).replace("without", "w/o").replace("-", " ").replace(" ", "\n")
        table.add_column(
            Text(short), justify="left" if text else "right", no_wrap=not text, min_width=8 if text else None
        )
    for line in lines:
        cells = [cell if isinstance(cell, Text) else Text(cell) for cell in line]
        table.add_row(*cells, style="dim" if LOST in line else None)
    return table


def markdown(comparison: Comparison) -> str:
    """The methods side by side as a Markdown table with its caption underneath."""
    lines = [[markdown_cell(cell) for cell in row_cells(row)] for row in rows(comparison)]
    table = markdown_grid(headings(comparison), lines, texts=2)
    return f"{table}\n\n{markdown_cell(caption(comparison))}\n"


def markdown_grid(heads: Sequence[str], lines: Sequence[Sequence[str]], texts: int = 1) -> str:
    """A Markdown table of cells that are Markdown already; all but the first ``texts`` columns to the right."""
    rule = ["---" if i < texts else "---:" for i in range(len(heads))]
    named = [markdown_cell(head) for head in heads]
    return "\n".join(f"| {' | '.join(line)} |" for line in (named, rule, *lines))


def markdown_cell(text: str) -> str:
    """Text that a Markdown table shows as it is, on one line."""
    for plain, escaped in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("*", "\\*"), ("`", "\\`")):
        text = text.replace(plain, escaped)
    return " ".join(text.split())


def write_csv(comparison: Comparison, path: str | Path) -> None:
    """One line a run, percent with 95 % Wilson intervals, safe to open in a spreadsheet.

    The file starts with a byte-order mark, because spreadsheets read UTF-8 as something else without one.
    """
    heads = ["model", "run", "knob", "value", "state"]
    for metric in scored_metrics():
        heads.append(column_head(metric, kind_of(comparison)))
        if metric.may_be_undetermined:
            heads.append(f"{metric.symbol} determined")
        elif metric.share_of:
            heads += [f"{metric.symbol} low ({metric.unit})", f"{metric.symbol} high ({metric.unit})"]
    heads += ["Δ ↓ (pp)", "Time ↓ (s)"]
    with Path(path).open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(heads)
        writer.writerows(_csv_lines(comparison))


def _csv_lines(comparison: Comparison) -> Iterator[list[str | float | None]]:
    knobs = {id(point): symbol(f.knob) for f in comparison.frontiers for point in f.points}
    references = {id(p): judged(f, comparison).reference for f in comparison.frontiers for p in f.points}
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
        for metric in scored_metrics():
            line.append(scaled(metric, getattr(point.scores, metric.name)))
            if metric.may_be_undetermined:
                line.append("yes" if is_determined(point.classification, metric) else "no")
            elif metric.share_of:
                line += map(_scaled, _interval(point, metric.name))
        delta = point_delta(point, references.get(id(point), fallback))
        yield [*line, _scaled(delta), point.seconds]


def _interval(point: Point, metric: str) -> tuple[float | None, float | None]:
    known = not point.diverged and is_number(getattr(point.scores, metric))
    return point.scores.interval(metric) if known else (None, None)


def spreadsheet_text(text: str) -> str:
    """A text cell that a spreadsheet cannot take for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
