"""Exports of generator comparisons: Markdown, LaTeX, CSV, JSON, HTML and figures."""

from __future__ import annotations

from gradpivot.report.common.exports import Exports
from gradpivot.report.generators.figures import generator_figures
from gradpivot.report.generators.grids import section
from gradpivot.report.generators.page import generators_payload, sheet_texts
from gradpivot.report.generators.tables import GENERATORS_COLUMNS, console_tables, csv_lines
from gradpivot.results import Generators, compare_generators

__all__ = ["GENERATORS", "write_generators"]

GENERATORS = Exports[Generators](
    name="generators", compare=compare_generators, section=section, csv_columns=GENERATORS_COLUMNS, csv_lines=csv_lines,
    payload=generators_payload, texts=sheet_texts, style="wide", figures=generator_figures,
    console_tables=console_tables,
)  # fmt: skip
"""Renders and writes generator comparisons."""

write_generators = GENERATORS.write
