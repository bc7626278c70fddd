"""Generators compared, written to a folder: what was asked for, each file whole or not there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gradpivot.report.common.exports import Exports, spreadsheet
from gradpivot.report.generators.page import write_generators_page
from gradpivot.report.generators.tables import (
    generators_console,
    generators_csv,
    generators_json,
    generators_latex,
    generators_markdown,
)
from gradpivot.results import Generators, Record, compare_generators

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "GENERATORS", "write_generators"]


def _figures(generators: Generators) -> Mapping[str, Figure]:
    from gradpivot.report.generators.figures import generator_figures

    return generator_figures(generators)


GENERATORS = Exports[Generators](
    "generators",
    {
        "markdown": (".md", generators_markdown),
        "latex": (".tex", generators_latex),
        "csv": (".csv", lambda generators: spreadsheet(generators_csv(generators))),
        "json": (".json", generators_json),
    },
    write_generators_page,
    _figures,
    generators_console,
)
"""How they are written and shown."""

FORMATS = GENERATORS.formats
"""What can be written."""


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
    GENERATORS.check(formats)
    found = records if isinstance(records, Generators) else compare_generators(records)
    return GENERATORS.write(found, Path(folder), formats, title, suffix)
