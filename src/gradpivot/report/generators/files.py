"""Generators compared, written to a folder: what was asked for, each file whole or not there."""

from __future__ import annotations

from gradpivot.report.common.exports import Exports
from gradpivot.report.generators.figures import generator_figures
from gradpivot.report.generators.grids import section
from gradpivot.report.generators.page import generators_payload, sheet_texts
from gradpivot.report.generators.tables import GENERATORS_HEADS, console_tables, csv_lines
from gradpivot.results import Generators, compare_generators

__all__ = ["GENERATORS", "write_generators"]

GENERATORS = Exports[Generators](
    name="generators", compare=compare_generators, section=section, csv_heads=GENERATORS_HEADS, csv_lines=csv_lines,
    payload=generators_payload, texts=sheet_texts, style="wide", figures=generator_figures,
    console_tables=console_tables,
)  # fmt: skip
"""How they are written and shown."""

write_generators = GENERATORS.write
