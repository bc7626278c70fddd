"""Text, HTML page and files of a comparison with many tables; standings and generators share it."""

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
from gradpivot.report.common.markup import bullet_list, fill_page, write_html
from gradpivot.report.common.sections import count_text, grids_section, lead_section, table_options
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
    """How one kind of comparison is rendered and written.

    Attributes:
        name: Name of the comparison and stem of its files: ``standings``.
        compare: Builds the comparison from records.
        section: Builds a table's section: title, findings, notes and grids.
        csv_columns: Columns of the CSV; includes ``role``, and ``note`` comes last.
        csv_lines: The CSV lines of a table.
        payload: Data for the page's script.
        texts: Fills the page's own placeholders from the payload.
        style: CSS class of the page's tables.
        figures: Builds the figures by name; imports matplotlib only when called.
        console_tables: Builds a table's tables for the terminal, the main one first.
    """

    name: str
    compare: Callable[[Iterable[Record]], Compared]
    section: Callable[[Any], Section]
    csv_columns: Sequence[str]
    csv_lines: Callable[[Any], Iterable[CsvLine]]
    payload: Callable[[Compared], dict[str, Any]]
    texts: Callable[[dict[str, Any]], dict[str, str]] = lambda _: {}
    style: str = ""
    figures: Callable[[Compared], Mapping[str, Figure]]
    console_tables: Callable[[Any], list[Table]]

    @property
    def formats(self) -> tuple[str, ...]:
        """Formats that :meth:`write` supports, in the order it writes them."""
        return (*self._texts, "html", "figures")

    @property
    def _texts(self) -> dict[str, tuple[str, Callable[[Compared], str]]]:
        """File suffix and renderer of each text format."""
        return {
            "markdown": (".md", self.markdown),
            "latex": (".tex", self.latex),
            # Spreadsheets detect UTF-8 only by the byte-order mark.
            "csv": (".csv", lambda compared: "\ufeff" + self.csv(compared)),
            "json": (".json", self.json),
        }

    def sections(self, compared: Compared) -> list[Section]:
        """The section of every table."""
        return [self.section(table) for table in compared.tables]

    def markdown(self, compared: Compared) -> str:
        """All tables as one Markdown page."""
        return markdown_page(self.name.capitalize(), compared.notes, self.sections(compared))

    def latex(self, compared: Compared) -> str:
        r"""All tables for LaTeX; needs only ``\usepackage{booktabs}``."""
        return latex_page(self.name, compared.notes, self.sections(compared))

    def json(self, compared: Compared) -> str:
        """Everything except pictures, as fractions and seconds, in the comparison's schema."""
        return json.dumps(compared.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"

    def csv(self, compared: Compared) -> str:
        """Tidy CSV: one number per line, its unit in ``unit``, its 95 % interval in ``low`` and ``high``.

        Text is escaped so that no spreadsheet reads it as a formula. Notes on the comparison come last, with the
        role ``note`` and the text in the last column.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.csv_columns)
        for table in compared.tables:
            writer.writerows(self.csv_lines(table))
        empty = ["note" if column == "role" else "" for column in self.csv_columns[:-1]]
        writer.writerows([*empty, spreadsheet_text(note)] for note in compared.notes)
        return text.getvalue()

    def console(self, compared: Compared) -> Group:
        """All tables for an 80-column terminal, with the findings and notes."""
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
        """One self-contained HTML page that works offline."""
        sections = list(enumerate(self.sections(compared)))
        data = self.payload(compared)
        return fill_page(
            self.name,
            title or self.name.capitalize(),
            data,
            size=count_text(compared.records, len(compared.tables)),
            notes=bullet_list(compared.notes),
            options=table_options(table.title for table in compared.tables),
            leads="\n".join(lead_section(i, section) for i, section in sections),
            tables="\n".join(grids_section(i, section, self.style) for i, section in sections),
            **self.texts(data),
        )

    def html(self, compared: Compared) -> str:
        """An HTML fragment for another document: findings and tables without charts or scripts."""
        sections = enumerate(self.sections(compared))
        parts = [lead_section(i, section) + grids_section(i, section) for i, section in sections]
        return "\n".join([bullet_list(compared.notes), *parts] if compared.notes else parts) + "\n"

    def write(
        self,
        compared: Compared | Iterable[Record],
        folder: str | Path,
        formats: Collection[str] | None = None,
        title: str = "",
        suffix: str = ".png",
    ) -> list[Path]:
        """Write the comparison in each format and return the written files.

        Args:
            compared: The comparison, or the records to compare.
            folder: Output folder; created if missing. Figures go into its subfolder ``figures``.
            formats: A subset of :attr:`formats`; all by default.
            title: Title of the page.
            suffix: Figure format: ``.png``, ``.svg`` or ``.pdf``.

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
