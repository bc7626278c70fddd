"""Standings written to a folder: what was asked for, each file whole or not there."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from gradpivot.atomic import write_text
from gradpivot.errors import GradPivotError
from gradpivot.frontier.standings import Standings
from gradpivot.report.standings_page import write_standings_page
from gradpivot.report.standings_tables import (
    standings_csv,
    standings_json,
    standings_latex,
    standings_markdown,
)

__all__ = ["FORMATS", "write_standings"]

FORMATS = ("markdown", "latex", "csv", "json", "html", "figures")
"""What can be written."""

_TEXTS: dict[str, tuple[str, Callable[[Standings], str]]] = {
    "markdown": ("standings.md", standings_markdown),
    "latex": ("standings.tex", standings_latex),
    # Spreadsheets read UTF-8 as something else without a byte-order mark.
    "csv": ("standings.csv", lambda standings: "\ufeff" + standings_csv(standings)),
    "json": ("standings.json", standings_json),
}


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
    folder = Path(folder)
    if unknown := [name for name in formats if name not in FORMATS]:
        raise GradPivotError(f"cannot write standings as {unknown[0]!r}; choose from {', '.join(FORMATS)}")
    written = []
    for name in (known for known in FORMATS if known in formats):
        if name == "html":
            written.append(write_standings_page(standings, folder / "standings.html", title))
        elif name == "figures":
            written += _figures(standings, folder / "figures", suffix)
        else:
            file, make = _TEXTS[name]
            write_text(folder / file, make(standings))
            written.append(folder / file)
    return written


def _figures(standings: Standings, folder: Path, suffix: str) -> list[Path]:
    from gradpivot.report.canvas import save_figure
    from gradpivot.report.standings_figures import standings_figures

    return [
        save_figure(figure, folder / f"{name}{suffix}")
        for name, figure in standings_figures(standings).items()
    ]
