"""The page: one self-contained HTML file that opens offline, with the frontier and a γ slider.

Nothing in it makes a request. The scripts that may run are named by their hashes in the page's Content Security
Policy, so that a string from a results file could not run even if it escaped its escaping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from gradpivot.report.common.markup import filled_page, listing, sortable_table, write_html
from gradpivot.report.common.tables import headings, point_headings, point_rows, row_cells, rows  # fmt: skip
from gradpivot.report.common.wording import MISSING, caption, gap_kind, kind_of, meanings
from gradpivot.report.run.view import gaps, payload, verdict
from gradpivot.results import Comparison

__all__ = ["render_page", "write_page"]


def render_page(comparison: Comparison) -> str:
    """The whole page as text."""
    data = payload(comparison)
    return filled_page(
        "run",
        comparison.title or "Unlearning",
        data,
        problem=escape(_problem_line(comparison)),
        verdict=escape(verdict(comparison)),
        best="Nearest to the star is best." if gap_kind(kind_of(comparison)) else "Top right is best.",
        shown="Each method at its run nearest to the retrained model."
        if comparison.retrained
        else "Each method at its Pareto-optimal run with the largest sum of scores.",
        gaps=listing(gaps(comparison)),
        options=_options(data["frontiers"]),
        methods=sortable_table(
            "methods", "Methods", headings(comparison), [row_cells(row) for row in rows(comparison)]
        ),
        runs=sortable_table(
            "runs", "All runs", point_headings(comparison), [cells for *_, cells in point_rows(comparison)]
        ),
        caption=escape(caption(comparison)),
        meanings=_meaning_table(comparison),
        problem_details=_details(comparison.problem),
        provenance=_details(comparison.provenance),
    )


def write_page(comparison: Comparison, path: str | Path) -> Path:
    """Write the page; a reader sees the old file or the new one, never half of one."""
    return write_html(path, render_page(comparison))


_KINDS = {
    "class": "class-wise forgetting",
    "random": "a random share forgotten",
    "index": "named samples forgotten",
    "predicate": "what a rule says forgotten",
}


def _problem_line(comparison: Comparison) -> str:
    problem = comparison.problem
    kind = str(problem.get("kind", "class"))
    parts = [str(problem.get("name") or ""), _KINDS.get(kind, f"{kind} forgetting")]
    parts.append(f"{sum(len(f.points) for f in comparison.frontiers)} runs")
    return " · ".join(part for part in parts if part)


def _options(frontiers: Sequence[Mapping[str, Any]]) -> str:
    return "".join(f'<option value="{i}">{escape(f["name"])}</option>' for i, f in enumerate(frontiers) if f["gamma"])


def _meaning_table(comparison: Comparison) -> str:
    heads = ("Number", "What it counts", "Better", "Ideal", "Compared to", "N")
    head = "".join(f'<th scope="col">{text}</th>' for text in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(m.name)}</th>'
        + "".join(
            f'<td data-head="{name}">{escape(text)}</td>'
            for name, text in zip(heads[1:], (m.what, m.direction, m.ideal, m.against, m.n), strict=True)
        )
        + "</tr>"
        for m in meanings(comparison)
    )
    return f'<table class="meanings"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _details(values: Mapping[str, Any]) -> str:
    """Nested settings as nested lists of terms."""
    if not values:
        return "<p>Nothing was recorded.</p>"
    items = "".join(f"<dt>{escape(str(key))}</dt><dd>{_text(value)}</dd>" for key, value in values.items())
    return f'<dl class="details">{items}</dl>'


def _text(value: object) -> str:
    if value is None or value == "" or value == {} or value == []:
        return MISSING
    if isinstance(value, Mapping):
        return _details(value)
    if isinstance(value, (list, tuple)):
        return escape(", ".join(str(item) for item in value))
    return escape(str(value))
