"""Options of sweep, compare, recipes and store."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from gradpivot.cli.options.fields import COMPUTING, named
from gradpivot.sweep import list_engines

__all__ = [
    "ENGINES", "CompareOptions", "RecipesOptions", "StoreCheckOptions", "StoreExportOptions", "StoreImportOptions",
    "SweepOptions",
]  # fmt: skip

ENGINES = f"Where runs execute: {', '.join(list_engines())}, or yours as my_module:start."


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Run every method of a recipe over its settings, classes and seeds.

    Finished runs are kept in the store. Run the command again to resume an interrupted sweep.

    example: gradpivot sweep digits --store runs/digits --classes 0-9 --seeds 3 --jobs 2

    example: gradpivot sweep my_recipe.yaml --store runs/mine --methods cup,ws --engine ray
    """

    recipe: tyro.conf.Positional[str]
    """A name from 'gradpivot recipes', or a YAML file."""
    store: Path = Path("runs/store")
    """Folder for finished runs. Several sweeps may share it, even at the same time."""
    classes: str | None = None
    """Forget these classes one at a time (3, or 3,5, or 0-9) instead of the recipe's."""
    fraction: float | None = None
    """Forget this random fraction of the training data instead of the recipe's."""
    seeds: int | None = None
    """Number of seeds, starting at 0. Each seed has its own original, reference and subsets."""
    methods: str = "all"
    """Only these methods, for example cup,ws."""
    without: str = field(default="", metadata=named("METHODS"))
    """All methods except these, for example cagrad,mgda."""
    protocols: str = "all"
    """Only these protocols: paper (as printed), clean (our defaults), or the recipe's own."""
    jobs: int | None = None
    """Worker processes; one per core by default."""
    threads: int = field(default=1, metadata=COMPUTING)
    """CPU threads per worker. The last digits of a result depend on it."""
    engine: Annotated[str, tyro.conf.arg(help=ENGINES)] = field(default="local", metadata=COMPUTING)
    address: str = field(default="auto", metadata=named("HOST:PORT", COMPUTING))
    """Address of the Ray cluster."""
    cpus: float = field(default=1.0, metadata=COMPUTING)
    """CPUs that Ray reserves per run."""
    gpus: float = field(default=0.0, metadata=COMPUTING)
    """GPUs that Ray reserves per run, for example 0.25. Runs then use the GPU."""
    config: Path | None = field(default=None, metadata=COMPUTING)
    """Read options from this YAML file (option: value). The command line overrides it."""
    json: bool = False
    """Print the final state as JSON."""


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Compare the finished runs of a store: tables, figures, a page.

    Doesn't need torch. The sweep may still be running.

    example: gradpivot compare runs/digits

    example: gradpivot compare runs/digits --out tables --formats markdown,latex,html,figures
    """

    store: tyro.conf.Positional[Path] = field(metadata=named("STORE"))
    """The sweep's store."""
    out: Path | None = None
    """Write files here; by default the tables are only printed."""
    formats: str = "all"
    """What to write: markdown, latex, csv, json, html, figures."""
    beside: str | None = field(default=None, metadata=named("DATASET"))
    """Print the paper's numbers for this dataset (cifar10, svhn) next to ours."""
    methods: str = "all"
    """Only these series or methods."""
    protocols: str = "all"
    """Only these protocols."""
    json: bool = False
    """Print the comparison as JSON."""


@dataclass(frozen=True, kw_only=True)
class RecipesOptions:
    """List the recipes for sweeps, or check and show one.

    example: gradpivot recipes

    example: gradpivot recipes digits
    """

    recipe: tyro.conf.Positional[str | None] = field(default=None, metadata=named("[RECIPE]"))
    """A recipe's name, or a YAML file. Without it all recipes are listed."""
    json: bool = False
    """Print as JSON with every setting."""


@dataclass(frozen=True, kw_only=True)
class StoreExportOptions:
    """Write a store's finished runs as JSON lines.

    example: gradpivot store export runs/digits digits.jsonl
    """

    store: tyro.conf.Positional[Path] = field(metadata=named("STORE"))
    """The store."""
    file: tyro.conf.Positional[Path] = field(metadata=named("FILE"))
    """The file to write."""
    pictures: bool = True
    """Omit generated samples, which make up most of the file."""


@dataclass(frozen=True, kw_only=True)
class StoreImportOptions:
    """Add exported runs to a store. Runs that are already there stay.

    example: gradpivot store import runs/all digits.jsonl
    """

    store: tyro.conf.Positional[Path] = field(metadata=named("STORE"))
    """The store; created if missing."""
    file: tyro.conf.Positional[Path] = field(metadata=named("FILE"))
    """A file from 'gradpivot store export'."""


@dataclass(frozen=True, kw_only=True)
class StoreCheckOptions:
    """Verify the checksum of every finished run.

    example: gradpivot store check runs/digits
    """

    store: tyro.conf.Positional[Path] = field(metadata=named("STORE"))
    """The store."""
