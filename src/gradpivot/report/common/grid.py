"""Tables ready to be written down, and what is said beside them; Markdown of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gradpivot.report.common.tables import markdown_cell, markdown_grid
from gradpivot.results import ComparedTable

__all__ = ["Grid", "GridCell", "Section", "grid_lines", "markdown_page", "model_rows"]


class GridCell(NamedTuple):
    """A cell's text, and whether it is the ``best`` or the ``second`` of its column."""

    text: str
    mark: str = ""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table ready to be written down.

    Attributes:
        name: A short name for anchors and labels.
        title: What it shows.
        heads: Its heads.
        lines: Its cells, row by row.
        caption: What to know beside it.
        texts: How many columns from the left are text.
        models: How many rows from the top are no method's but the original's and the retrained model's.
    """

    name: str
    title: str
    heads: tuple[str, ...]
    lines: tuple[tuple[GridCell, ...], ...]
    caption: str = ""
    texts: int = 1
    models: int = 0


def grid_lines(lines: Iterable[Iterable[GridCell | str]]) -> tuple[tuple[GridCell, ...], ...]:
    """Lines of cells and of plain texts as a grid has them."""
    return tuple(tuple(cell if isinstance(cell, GridCell) else GridCell(cell) for cell in line) for line in lines)


def model_rows(table: ComparedTable[Any]) -> int:
    """How many rows of a table are no method's."""
    return sum(row.role != "run" for row in table.rows)


@dataclass(frozen=True, kw_only=True)
class Section:
    """All that is said of one table of a comparison.

    Attributes:
        title: What it compares.
        sentences: Who leads.
        notes: What is missing.
        grids: Its tables, the main one first.
        short: The sentences that a printed caption has room for.
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
            lines += [f"### {markdown_cell(grid.title)}", "", markdown_grid(grid.heads, cells, grid.texts), "",
                      markdown_cell(grid.caption), ""]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"


def _items(texts: Sequence[str]) -> list[str]:
    return [*(f"- {markdown_cell(text)}" for text in texts), ""] if texts else []


def _markdown(cell: GridCell) -> str:
    text = markdown_cell(cell.text)
    return {"best": f"**{text}**", "second": f"<u>{text}</u>"}.get(cell.mark, text)
