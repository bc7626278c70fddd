"""A comparison of many tables as text, page and files: what its two kinds, standings and generators, share."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gradpivot.errors import GradPivotError
from gradpivot.report.common.grid import Section, markdown_page
from gradpivot.report.common.latex import latex_page
from gradpivot.report.common.markup import filled_page, listing, write_html
from gradpivot.report.common.sections import grids_section, lead_section, size_words, table_options
from gradpivot.report.common.tables import spreadsheet_text
from gradpivot.results import ComparedTables, Record
from gradpivot.runtime import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group
    from rich.table import Table

__all__ = ["CsvLine", "Exports"]

Compared = TypeVar("Compared", bound=ComparedTables[Any])
CsvLine = list[str | float | int | None]


@dataclass(frozen=True, kw_only=True)
class Exports(Generic[Compared]):
    """How one kind of comparison is shown and written.

    Attributes:
        name: What it is called, and its files with it: ``standings``.
        compare: Makes it from records.
        section: A table with all that is said of it.
        csv_heads: The columns of the CSV; the last is ``note``, and one is ``role``.
        csv_lines: A table's lines of the CSV.
        payload: What the page's script draws.
        texts: Makes the text of the page's own placeholders from the payload.
        style: The style of the page's tables.
        figures: Makes the figures, by name; matplotlib is imported only when they are asked for.
        console_tables: Makes a table's tables for the terminal, the main one first.
    """

    name: str
    compare: Callable[[Iterable[Record]], Compared]
    section: Callable[[Any], Section]
    csv_heads: Sequence[str]
    csv_lines: Callable[[Any], Iterable[CsvLine]]
    payload: Callable[[Compared], dict[str, Any]]
    texts: Callable[[dict[str, Any]], dict[str, str]] = lambda _: {}
    style: str = ""
    figures: Callable[[Compared], Mapping[str, Figure]]
    console_tables: Callable[[Any], list[Table]]

    @property
    def formats(self) -> tuple[str, ...]:
        """What can be written, in the order in which it is."""
        return (*self._texts, "html", "figures")

    @property
    def _texts(self) -> dict[str, tuple[str, Callable[[Compared], str]]]:
        """By format the file's suffix and what makes its text."""
        return {
            "markdown": (".md", self.markdown),
            "latex": (".tex", self.latex),
            # Without a byte-order mark spreadsheets read UTF-8 as something else.
            "csv": (".csv", lambda compared: "\ufeff" + self.csv(compared)),
            "json": (".json", self.json),
        }

    def sections(self, compared: Compared) -> list[Section]:
        """Every table with all that is said of it."""
        return [self.section(table) for table in compared.tables]

    def markdown(self, compared: Compared) -> str:
        """All tables as one Markdown page."""
        return markdown_page(self.name.capitalize(), compared.notes, self.sections(compared))

    def latex(self, compared: Compared) -> str:
        r"""All tables for LaTeX; needs ``\usepackage{booktabs}`` and nothing else."""
        return latex_page(self.name, compared.notes, self.sections(compared))

    def json(self, compared: Compared) -> str:
        """Everything but pictures, fractions and seconds, under the comparison's schema."""
        return json.dumps(compared.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"

    def csv(self, compared: Compared) -> str:
        """Tidy: one line a number, its unit in the column ``unit``, ``low`` and ``high`` being 95 % intervals.

        Text cannot be taken for a formula. Notes on the whole come last, a line each with the role ``note`` and
        nothing but the last column.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.csv_heads)
        for table in compared.tables:
            writer.writerows(self.csv_lines(table))
        empty = ["note" if column == "role" else "" for column in self.csv_heads[:-1]]
        writer.writerows([*empty, spreadsheet_text(note)] for note in compared.notes)
        return text.getvalue()

    def console(self, compared: Compared) -> Group:
        """All tables for the terminal, 80 columns wide, with who leads and what is missing."""
        from rich.console import Group
        from rich.text import Text

        parts: list[Any] = [Text(note, style="yellow") for note in compared.notes]
        for table in compared.tables:
            first, *others = self.console_tables(table)
            parts += [first, Text(), *map(Text, self.section(table).sentences), Text()]
            parts += [part for other in others for part in (other, Text())]
            parts += [Text(note, style="yellow") for note in table.notes]
        return Group(*parts)

    def page(self, compared: Compared, title: str = "") -> str:
        """One self-contained HTML page that opens offline, as text."""
        told = list(enumerate(self.sections(compared)))
        data = self.payload(compared)
        return filled_page(
            self.name,
            title or self.name.capitalize(),
            data,
            size=size_words(compared.records, len(compared.tables)),
            notes=listing(compared.notes),
            options=table_options(table.title for table in compared.tables),
            leads="\n".join(lead_section(i, one) for i, one in told),
            tables="\n".join(grids_section(i, one, self.style) for i, one in told),
            **self.texts(data),
        )

    def html(self, compared: Compared) -> str:
        """The words and tables without page, charts or script, to be put into another document."""
        parts = [lead_section(i, one) + grids_section(i, one) for i, one in enumerate(self.sections(compared))]
        return "\n".join([listing(compared.notes), *parts] if compared.notes else parts) + "\n"

    def write(
        self,
        compared: Compared | Iterable[Record],
        folder: str | Path,
        formats: Collection[str] | None = None,
        title: str = "",
        suffix: str = ".png",
    ) -> list[Path]:
        """Write the comparison in each format and return the files.

        Args:
            compared: The comparison, or the finished runs, originals and references to compare.
            folder: Where; made if it is not there. Figures go into its subfolder ``figures``.
            formats: Some of :attr:`formats`; all if not given.
            title: The page's head.
            suffix: How figures are saved: ``.png``, ``.svg`` or ``.pdf``.

        Raises:
            GradPivotError: for an unknown format or suffix, records that cannot be compared, damaged pictures, or
                figures without matplotlib.
        """
        formats = self.formats if formats is None else formats
        if unknown := [name for name in formats if name not in self.formats]:
            raise GradPivotError(f"cannot write {self.name} as {unknown[0]!r}; choose from {', '.join(self.formats)}")
        found: Any = compared if isinstance(compared, ComparedTables) else self.compare(compared)
        folder, written = Path(folder), []
        for name in (known for known in self.formats if known in formats):
            if name == "html":
                written.append(write_html(folder / f"{self.name}.html", self.page(found, title)))
            elif name == "figures":
                from gradpivot.report.common.canvas import save_figure

                figures = self.figures(found).items()
                written += [save_figure(figure, folder / "figures" / f"{stem}{suffix}") for stem, figure in figures]
            else:
                ending, make = self._texts[name]
                write_text(folder / f"{self.name}{ending}", make(found))
                written.append(folder / f"{self.name}{ending}")
        return written
