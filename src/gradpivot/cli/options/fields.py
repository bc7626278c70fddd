"""Field metadata of options: help section and placeholder."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = [
    "COMPUTING", "FOLDED", "FORGET", "HOW_MUCH", "INPUTS", "METAVAR", "METHOD", "MODEL", "OUTPUT", "SAMPLING",
    "SECTION", "SECTIONS", "named",
]  # fmt: skip

SECTION, METAVAR = "section", "metavar"

# Always shown, in this order. An option without a section is an output option.
FORGET = MappingProxyType({SECTION: "What to forget"})
HOW_MUCH = MappingProxyType({SECTION: "How much"})
MODEL = MappingProxyType({SECTION: "Model and data"})
OUTPUT = MappingProxyType({SECTION: "Run and output"})
# Folded: '--help' names them, '--help-all' shows them.
METHOD = MappingProxyType({SECTION: "Method settings"})
INPUTS = MappingProxyType({SECTION: "Weights and inputs"})
SAMPLING = MappingProxyType({SECTION: "Sampling"})
COMPUTING = MappingProxyType({SECTION: "Computing"})

SECTIONS = tuple(found[SECTION] for found in (FORGET, HOW_MUCH, MODEL, OUTPUT, METHOD, INPUTS, SAMPLING, COMPUTING))
FOLDED = frozenset(found[SECTION] for found in (METHOD, INPUTS, SAMPLING, COMPUTING))


def named(placeholder: str, section: Mapping[str, str] = OUTPUT) -> dict[str, str]:
    """Metadata of an option with this placeholder."""
    return {**section, METAVAR: placeholder}
