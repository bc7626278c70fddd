"""Standings written to a folder: what was asked for, each file whole or not there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gradpivot.report.common.exports import Exports, spreadsheet
from gradpivot.report.standings.page import write_standings_page
from gradpivot.report.standings.tables import (
    standings_console,
    standings_csv,
    standings_json,
    standings_latex,
    standings_markdown,
)
from gradpivot.results import Standings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "STANDINGS", "write_standings"]


def _figures(standings: Standings) -> Mapping[str, Figure]:
    from gradpivot.report.standings.figures import standings_figures

    return standings_figures(standings)


STANDINGS = Exports[Standings](
    "standings",
    {
        "markdown": (".md", standings_markdown),
        "latex": (".tex", standings_latex),
        "csv": (".csv", lambda standings: spreadsheet(standings_csv(standings))),
        "json": (".json", standings_json),
    },
    write_standings_page,
    _figures,
    standings_console,
)
"""How they are written and shown."""

FORMATS = STANDINGS.formats
"""What can be written."""


def write_standings(
    standings: Standings,
    folder: str | Path,
    formats: Collection[str] = FORMATS,
    *,
    title: str = "Standings",
    suffix: str = ".png",
) -> list[Path]:
    """Write the standings in each format and return the files.

    Args:
        standings: What to write.
        folder: Where; made if it is not there. Figures go into its subfolder ``figures``.
        formats: Some of :data:`FORMATS`.
        title: The page's head.
        suffix: How figures are saved: ``.png``, ``.svg`` or ``.pdf``.

    Raises:
        GradPivotError: for an unknown format or suffix, or figures without matplotlib.
    """
    return STANDINGS.write(standings, Path(folder), formats, title, suffix)
