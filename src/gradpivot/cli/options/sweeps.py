"""Many runs in a store: the options of sweep, compare, recipes and store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

__all__ = [
    "CompareOptions", "RecipesOptions", "StoreCheckOptions", "StoreExportOptions", "StoreImportOptions",
    "SweepOptions",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Run every method of a recipe over its settings, classes and seeds, on all cores or a cluster.

    Finished runs are kept in the store; killed or interrupted, the same command does only what is missing.

    example: gradpivot sweep digits --store runs/digits --classes 0-9 --seeds 3 --jobs 2

    example: gradpivot sweep my_recipe.yaml --store runs/mine --methods cup,ws --engine ray
    """

    recipe: tyro.conf.Positional[str]
    """One of 'gradpivot recipes', or a YAML file of your own."""
    store: Path = Path("runs/store")
    """The folder finished runs are kept in; several sweeps may share it, also at the same time."""
    classes: str | None = None
    """Forget these classes, one at a time (3, or 3,5, or 0-9), in the place of what the recipe says."""
    fraction: float | None = None
    """Forget this random share of the training data, in the place of what the recipe says."""
    seeds: int | None = None
    """How many seeds, from 0 on; each has its own original, references and subsets."""
    methods: str = "all"
    """Only these methods, for example cup,ws."""
    without: str = ""
    """All methods but these, for example cagrad,mgda."""
    protocols: str = "all"
    """Only these protocols: paper (as printed), clean (our corrections), or the recipe's own."""
    jobs: int | None = None
    """Worker processes; as many as there are cores if not given."""
    threads: int = 1
    """Threads of each worker. Small models are fastest with one; last digits depend on it."""
    engine: str = "local"
    """Where runs are done: local (processes on this machine), ray (a cluster; the extra 'ray'), one that is installed,
    or yours as my_module:start."""
    address: str = "auto"
    """The Ray cluster: auto, or the head's host:port."""
    cpus: float = 1.0
    """CPUs that Ray sets aside for each run."""
    gpus: float = 0.0
    """GPUs that Ray sets aside for each run, for example 0.25; runs are then on the GPU."""
    config: Path | None = None
    """Read options from this YAML file (option: value); options typed here win."""
    json: bool = False
    """Print how it ended as JSON on standard output."""


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Compare the finished runs of a store: the paper's tables, who wins on what, figures, a page. Needs no torch.

    example: gradpivot compare runs/digits

    example: gradpivot compare runs/digits --out docs/results/digits --formats markdown,latex,html,figures
    """

    store: tyro.conf.Positional[Path]
    """The store that 'gradpivot sweep' filled; it may still be filling it."""
    out: Path | None = None
    """Write files here; without it the tables are only printed."""
    formats: str = "all"
    """What to write: markdown, latex, csv, json, html, figures."""
    beside: str | None = None
    """Print the paper's numbers for this data set (cifar10, svhn) beside ours, where it has no own counterpart."""
    methods: str = "all"
    """Only these series or methods."""
    protocols: str = "all"
    """Only these protocols."""
    json: bool = False
    """Print the standings as JSON on standard output."""


@dataclass(frozen=True, kw_only=True)
class RecipesOptions:
    """List the recipes, or check and show one: yours or ours.

    example: gradpivot recipes

    example: gradpivot recipes digits
    """

    recipe: tyro.conf.Positional[str | None] = None
    """A recipe's name, or a YAML file; all are listed if not given."""
    json: bool = False
    """Print as JSON, with every setting spelled out."""


@dataclass(frozen=True, kw_only=True)
class InStore:
    """What the commands on a store that is there have."""

    store: tyro.conf.Positional[Path]
    """The store."""


@dataclass(frozen=True, kw_only=True)
class StoreExportOptions(InStore):
    """Write a store's finished runs as JSON lines, to be committed or merged.

    example: gradpivot store export runs/digits digits.jsonl
    """

    file: tyro.conf.Positional[Path]
    """Where to."""
    pictures: bool = True
    """Also what generators drew, nine tenths of such a file; leave it out of what is committed."""


@dataclass(frozen=True, kw_only=True)
class StoreImportOptions:
    """Take exported runs into a store; those it has already stay as they are.

    example: gradpivot store import runs/all digits.jsonl
    """

    store: tyro.conf.Positional[Path]
    """The store; made if it is not there."""
    file: tyro.conf.Positional[Path]
    """What 'gradpivot store export' wrote."""


@dataclass(frozen=True, kw_only=True)
class StoreCheckOptions(InStore):
    """Read every finished run of a store, check it, and name what is damaged.

    example: gradpivot store check runs/digits
    """
