"""What there is and what came out: the options of methods, rerun, report and completion."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

__all__ = ["CompletionOptions", "MethodsOptions", "ReportOptions", "RerunOptions"]


@dataclass(frozen=True, kw_only=True)
class MethodsOptions:
    """List the methods with their settings.

    example: gradpivot methods --json
    """

    pattern: tyro.conf.Positional[str] = "*"
    """Only names that match this shell pattern; or yours as my_module:MyMethod."""
    json: bool = False
    """Print names, settings and defaults as JSON."""


@dataclass(frozen=True, kw_only=True)
class RerunOptions:
    """Run the settings in a run folder again and check that the scores are the same.

    example: gradpivot rerun runs/first
    """

    folder: tyro.conf.Positional[Path]
    """A folder that 'gradpivot unlearn' made."""
    out: Path | None = None
    """Keep the second run here; it is thrown away if not given."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Make tables, figures and the page again from a results.json; needs no torch.

    example: gradpivot report demo/results.json
    """

    results: tyro.conf.Positional[Path]
    """A results.json."""
    out: Path | None = None
    """Where to; beside the results if not given."""


@dataclass(frozen=True, kw_only=True)
class CompletionOptions:
    """Print a completion script for your shell.

    example: gradpivot completion bash > ~/.local/share/bash-completion/completions/gradpivot
    """

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """Which shell."""
