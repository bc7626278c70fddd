"""Format-independent tables and sections, and their Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gradpivot.report.common.tables import markdown_cell, markdown_grid
from gradpivot.results import ComparedTable

__all__ = ["Grid", "GridCell", "Section", "grid_lines", "markdown_page", "model_rows"]


class GridCell(NamedTuple):
    """A cell's text, with the mark ``best`` or ``second`` if it is that of its column."""

    text: str
    mark: str = ""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table of formatted cells.

    Attributes:
        name: Short name for anchors and labels.
        title: Heading.
        headers: Column headers.
        lines: Cells by row.
        caption: Text below the table.
        texts: Number of text columns, counted from the left.
        models: Number of rows at the top for reference models (original, retrained).
    """

    name: str
    title: str
    headers: tuple[str, ...]
    lines: tuple[tuple[GridCell, ...], ...]
    caption: str = ""
    texts: int = 1
    models: int = 0


def grid_lines(lines: Iterable[Iterable[GridCell | str]]) -> tuple[tuple[GridCell, ...], ...]:
    """Turn rows of cells and strings into rows of :class:`GridCell`."""
    return tuple(tuple(cell if isinstance(cell, GridCell) else GridCell(cell) for cell in line) for line in lines)


def model_rows(table: ComparedTable[Any]) -> int:
    """Number of rows for reference models (original, retrained)."""
    return sum(row.role != "run" for row in table.rows)


@dataclass(frozen=True, kw_only=True)
class Section:
    """One table of a comparison with its text.

    Attributes:
        title: Heading.
        sentences: Findings, such as which method leads.
        notes: Caveats, such as missing runs.
        grids: Tables, the main one first.
        short: The findings that fit a printed caption.
    """

    title: str
    sentences: Sequence[str]
    notes: Sequence[str]
    grids: Sequence[Grid]
    short: Sequence[str] = ()


def markdown_page(title: str, notes: Sequence[str], sections: Iterable[Section]) -> str:
    """All tables as one Markdown page."""
    lines = [f"# {title}", "", *_items(notes)]
    for section in sections:
        lines += [f"## {markdown_cell(section.title)}", "", *(_items(section.sentences) or [""])]
        if section.notes:
            lines += ["Notes:", "", *_items(section.notes)]
        for grid in section.grids:
            cells = [[_markdown(cell) for cell in line] for line in grid.lines]
            lines += [f"### {markdown_cell(grid.title)}", "", markdown_grid(grid.headers, cells, grid.texts), "",
                      markdown_cell(grid.caption), ""]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"


def _items(texts: Sequence[str]) -> list[str]:
    return [*(f"- {markdown_cell(text)}" for text in texts), ""] if texts else []


def _markdown(cell: GridCell) -> str:
    text = markdown_cell(cell.text)
    return {"best": f"**{text}**", "second": f"<u>{text}</u>"}.get(cell.mark, text)
