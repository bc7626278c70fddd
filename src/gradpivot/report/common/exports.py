"""A comparison written to a folder: what was asked for, each file whole or not there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from gradpivot.errors import GradPivotError
from gradpivot.runtime import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group

__all__ = ["Exports", "spreadsheet"]

Compared = TypeVar("Compared")


def spreadsheet(csv: str) -> str:
    """CSV with a byte-order mark, without which spreadsheets read UTF-8 as something else."""
    return "\ufeff" + csv


@dataclass(frozen=True)
class Exports(Generic[Compared]):
    """How one kind of comparison is written.

    Attributes:
        name: What it is called, and its files with it: ``standings``.
        texts: By format the file's suffix and what makes its text.
        page: Writes the page to a file, with a title.
        figures: Makes the figures, by name; imported only when they are asked for.
        console: Makes what a terminal shows.
    """

    name: str
    texts: Mapping[str, tuple[str, Callable[[Compared], str]]]
    page: Callable[[Compared, Path, str], Path]
    figures: Callable[[Compared], Mapping[str, Figure]]
    console: Callable[[Compared], Group]

    @property
    def formats(self) -> tuple[str, ...]:
        """What can be written, in the order in which it is."""
        return (*self.texts, "html", "figures")

    def json(self, compared: Compared) -> str:
        """The comparison for programs."""
        _, make = self.texts["json"]
        return make(compared)

    def check(self, formats: Collection[str]) -> None:
        """Raise for a format that is not there."""
        if unknown := [name for name in formats if name not in self.formats]:
            raise GradPivotError(f"cannot write {self.name} as {unknown[0]!r}; choose from {', '.join(self.formats)}")

    def write(self, compared: Compared, folder: Path, formats: Collection[str], title: str, suffix: str) -> list[Path]:
        """Write each format and return the files; figures go into the subfolder ``figures``."""
        self.check(formats)
        written = []
        for name in (known for known in self.formats if known in formats):
            if name == "html":
                written.append(self.page(compared, folder / f"{self.name}.html", title))
            elif name == "figures":
                written += self._figures(compared, folder / "figures", suffix)
            else:
                ending, make = self.texts[name]
                write_text(folder / f"{self.name}{ending}", make(compared))
                written.append(folder / f"{self.name}{ending}")
        return written

    def _figures(self, compared: Compared, folder: Path, suffix: str) -> list[Path]:
        from gradpivot.report.common.canvas import save_figure

        return [save_figure(figure, folder / f"{name}{suffix}") for name, figure in self.figures(compared).items()]
