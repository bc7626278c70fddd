"""HTML sections of pages with many tables: findings, grids, counts, the table menu."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from gradpivot.report.common.grid import Grid, Section
from gradpivot.report.common.markup import bullet_list, sortable_table

__all__ = ["count_text", "grids_section", "lead_section", "table_options"]


def count_text(records: int, tables: int) -> str:
    """``1,204 records · 3 tables``."""
    return f"{records:,} records · {tables} {'table' if tables == 1 else 'tables'}"


def table_options(titles: Iterable[str]) -> str:
    """Options of the table menu."""
    return "".join(f'<option value="{i}">{escape(title)}</option>' for i, title in enumerate(titles))


def lead_section(index: int, section: Section) -> str:
    """Findings and notes of a table."""
    items = "".join(f"<li>{escape(text)}</li>" for text in section.sentences)
    return (
        f'<section data-table="{index}" aria-labelledby="lead-{index}"><h2 id="lead-{index}">{escape(section.title)}'
        f'</h2><ul class="leads">{items}</ul>{bullet_list(section.notes)}</section>'
    )


def grids_section(index: int, section: Section, style: str = "") -> str:
    """A table's grids: the first open, the others collapsed.

    Args:
        index: Index of the table on the page.
        section: The section to render.
        style: Extra CSS classes for every grid.
    """
    first, *rest = section.grids
    folded = "".join(
        f"<details><summary>{escape(grid.title)}</summary>{_grid(index, grid, style)}</details>" for grid in rest
    )
    return (
        f'<section data-table="{index}" aria-labelledby="tables-{index}"><h2 id="tables-{index}">'
        f'{escape(first.title)}<span class="unseen">: {escape(section.title)}</span></h2>'
        f"{_grid(index, first, style)}{folded}</section>"
    )


def _grid(index: int, grid: Grid, style: str) -> str:
    styles = " ".join(name for name in (style, "numbers" if grid.texts == 1 else "") if name)
    table = sortable_table(f"t{index}-{grid.name}", grid.title, grid.headers, grid.lines, styles)
    return f'{table}<p class="caption">{escape(grid.caption)}</p>'
