"""Generators compared, written to a folder: what was asked for, each file whole or not there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from gradpivot.atomic import write_text
from gradpivot.errors import GradPivotError
from gradpivot.frontier.generator_tables import compare_generators
from gradpivot.frontier.generators import Generators
from gradpivot.frontier.record import Record
from gradpivot.report.generators_page import write_generators_page
from gradpivot.report.generators_tables import generators_csv, generators_json, generators_markdown

__all__ = ["FORMATS", "write_generators"]

FORMATS = ("markdown", "csv", "json", "html", "figures")
"""What can be written."""

_TEXTS: dict[str, tuple[str, Callable[[Generators], str]]] = {
    "markdown": ("generators.md", generators_markdown),
    # Spreadsheets read UTF-8 as something else without a byte-order mark.
    "csv": ("generators.csv", lambda generators: "\ufeff" + generators_csv(generators)),
    "json": ("generators.json", generators_json),
}


def write_generators(
    records: Iterable[Record] | Generators,
    folder: str | Path,
    formats: Collection[str] = FORMATS,
    *,
    title: str = "Generators",
    suffix: str = ".png",
) -> list[Path]:
    """Compare generators, write the comparison in each format and return the files.

    Args:
        records: Finished runs, originals and references; or what :func:`compare_generators` made of them.
        folder: Where; made if it is not there. Figures go into its subfolder ``figures``.
        formats: Some of :data:`FORMATS`.
        title: The page's head.
        suffix: How figures are saved: ``.png``, ``.svg`` or ``.pdf``.

    Raises:
        GradPivotError: for an unknown format or suffix, records that cannot be compared, damaged pictures, or figures
            without matplotlib.
    """
    folder = Path(folder)
    if unknown := [name for name in formats if name not in FORMATS]:
        raise GradPivotError(f"cannot write generators as {unknown[0]!r}; choose from {', '.join(FORMATS)}")
    found = records if isinstance(records, Generators) else compare_generators(records)
    written = []
    for name in (known for known in FORMATS if known in formats):
        if name == "html":
            written.append(write_generators_page(found, folder / "generators.html", title))
        elif name == "figures":
            written += _figures(found, folder / "figures", suffix)
        else:
            file, make = _TEXTS[name]
            write_text(folder / file, make(found))
            written.append(folder / file)
    return written


def _figures(generators: Generators, folder: Path, suffix: str) -> list[Path]:
    from gradpivot.report.canvas import save_figure
    from gradpivot.report.generators_figures import generator_figures

    return [
        save_figure(figure, folder / f"{name}{suffix}")
        for name, figure in generator_figures(generators).items()
    ]
