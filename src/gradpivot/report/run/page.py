"""The interactive report of one comparison: a self-contained HTML file with the frontier and a γ slider.

The page makes no requests. Its Content Security Policy allows only scripts with known hashes, so that text from a
results file cannot run even if escaping fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from gradpivot.report.common.markup import bullet_list, definition_list, fill_page, sortable_table, write_html
from gradpivot.report.common.tables import method_headers, point_headers, point_rows, row_cells, rows  # fmt: skip
from gradpivot.report.common.wording import caption, counted_runs, judged_by_gap, meanings
from gradpivot.report.run.view import missing_parts, payload, verdict
from gradpivot.results import Comparison

__all__ = ["render_page", "write_page"]


def render_page(comparison: Comparison) -> str:
    """The page as HTML."""
    data = payload(comparison)
    return fill_page(
        "run",
        comparison.title or "Unlearning",
        data,
        problem=escape(_problem_line(comparison)),
        verdict=escape(verdict(comparison)),
        best="Closest to the star is best." if judged_by_gap(comparison.kind) else "Top right is best.",
        hint=_hint(comparison),
        shown="Each row shows the method's run closest to the retrained model."
        if comparison.retrained
        else "Each row shows the method's Pareto-optimal run with the largest sum of scores.",
        gaps=bullet_list(missing_parts(comparison)),
        options=_options(data["frontiers"]),
        methods=sortable_table(
            "methods", "Methods", method_headers(comparison), [row_cells(row) for row in rows(comparison)]
        ),
        runs=sortable_table(
            "runs", "All runs", point_headers(comparison), [cells for *_, cells in point_rows(comparison)]
        ),
        caption=escape(caption(comparison)),
        meanings=_meaning_table(comparison),
        problem_details=definition_list(comparison.problem),
        provenance=definition_list(comparison.provenance),
    )


def write_page(comparison: Comparison, path: str | Path) -> Path:
    """Write the page atomically."""
    return write_html(path, render_page(comparison))


_KINDS = {
    "class": "class-wise forgetting",
    "random": "random forgetting",
    "index": "forgetting by index",
    "predicate": "forgetting by predicate",
}


def _problem_line(comparison: Comparison) -> str:
    problem = comparison.problem
    kind = str(problem.get("kind", "class"))
    parts = [str(problem.get("name") or ""), _KINDS.get(kind, f"{kind} forgetting")]
    parts.append(counted_runs(comparison))
    return " · ".join(part for part in parts if part)


def _hint(comparison: Comparison) -> str:
    """How to read and use the chart; lines and a selection need several runs of a method."""
    hover = "Hover over a point for its scores"
    if all(len(f.points) < 2 for f in comparison.frontiers):
        return f'<span class="screen">{hover}.</span>'
    lines = "Lines join runs that are Pareto-optimal in RA and UA."
    return f'{lines} <span class="screen">{hover}; click a γ point to select it.</span>'


def _options(frontiers: Sequence[Mapping[str, Any]]) -> str:
    return "".join(f'<option value="{i}">{escape(f["name"])}</option>' for i, f in enumerate(frontiers) if f["gamma"])


def _meaning_table(comparison: Comparison) -> str:
    headers = ("Metric", "What it measures", "Better", "Ideal", "Compared with", "N")
    head = "".join(f'<th scope="col">{text}</th>' for text in headers)
    body = "".join(
        f'<tr><th scope="row">{escape(m.name)}</th>'
        + "".join(
            f'<td data-head="{name}">{escape(text)}</td>'
            for name, text in zip(headers[1:], (m.what, m.direction, m.ideal, m.against, m.n), strict=True)
        )
        + "</tr>"
        for m in meanings(comparison)
    )
    return f'<table class="meanings"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
