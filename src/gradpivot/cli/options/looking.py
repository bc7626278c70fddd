"""Options of methods, rerun, report and completion."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tyro

from gradpivot.cli.options.fields import named

__all__ = ["CompletionOptions", "MethodsOptions", "ReportOptions", "RerunOptions"]


@dataclass(frozen=True, kw_only=True)
class MethodsOptions:
    """List the unlearning methods.

    example: gradpivot methods

    example: gradpivot methods "*grad" --json
    """

    pattern: tyro.conf.Positional[str] = field(default="*", metadata=named("[PATTERN]"))
    """Only names that match this shell pattern, or your own method as my_module:MyMethod."""
    json: bool = False
    """Print names, settings and defaults as JSON."""


@dataclass(frozen=True, kw_only=True)
class RerunOptions:
    """Repeat a run and check that the scores are identical.

    example: gradpivot rerun runs/first
    """

    folder: tyro.conf.Positional[Path] = field(metadata=named("FOLDER"))
    """A folder from 'gradpivot unlearn'."""
    out: Path | None = None
    """Keep the second run here. By default it is discarded."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Show a run, or rebuild the page of a demo, trace or audit.

    Doesn't need torch.

    example: gradpivot report demo

    example: gradpivot report runs/first
    """

    results: tyro.conf.Positional[Path]
    """A results.json, its folder (demo, trace), a run folder (unlearn, train), or an audit's folder."""
    out: Path | None = None
    """Output folder; by default next to the results."""


@dataclass(frozen=True, kw_only=True)
class CompletionOptions:
    """Print a shell completion script.

    example: gradpivot completion bash > ~/.local/share/bash-completion/completions/gradpivot
    """

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]] = field(metadata=named("bash|zsh|fish"))
    """The shell."""
