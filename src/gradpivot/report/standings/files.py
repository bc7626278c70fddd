"""Exports of standings: Markdown, LaTeX, CSV, JSON, HTML and figures."""

from __future__ import annotations

from gradpivot.report.common.exports import Exports
from gradpivot.report.standings.figures import standings_figures
from gradpivot.report.standings.grids import section
from gradpivot.report.standings.page import standings_payload
from gradpivot.report.standings.tables import STANDINGS_COLUMNS, console_tables, csv_lines
from gradpivot.results import Standings, standings

__all__ = ["STANDINGS", "write_standings"]

STANDINGS = Exports[Standings](
    name="standings", compare=standings, section=section, csv_columns=STANDINGS_COLUMNS, csv_lines=csv_lines,
    payload=standings_payload, figures=standings_figures, console_tables=console_tables,
)  # fmt: skip
"""Renders and writes standings."""

write_standings = STANDINGS.write
