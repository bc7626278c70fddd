"""The experiments behind docs/results: how each is run, at full size and quickly, and which records it leaves."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["EXPERIMENTS", "Experiment", "Place"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an experiment runs.

    Attributes:
        runs: Scratch folder for stores and run folders. Finished runs in it are not repeated.
        records: Where records go.
        figures: Where figures go that an experiment draws itself.
        quick: Whether to run the small size.
        jobs: Worker processes for sweeps.
    """

    runs: Path
    records: Path
    figures: Path
    quick: bool
    jobs: int

    def gradpivot(self, *words: str | Path) -> None:
        """Run a command of ours.

        Raises:
            SystemExit: if it fails.
        """
        self.python("-m", "gradpivot", *words)

    def python(self, *words: str | Path, into: Path | None = None) -> None:
        """Run Python, its standard output into a file if one is named."""
        command = [sys.executable, *map(str, words)]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE if into else None, text=True)
        if done.returncode:
            raise SystemExit(f"failed with status {done.returncode}: {' '.join(command[1:])}")
        if into:
            into.write_text(done.stdout, encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment.

    Attributes:
        cost: What it takes on two cores, for people.
        run: Runs it and leaves its records.
        quick: Whether it has a small size; the others are too dear for it, or need downloads.
        data: Data sets and weights it needs.
    """

    cost: str
    run: Callable[[str, Place], None]
    quick: bool = True
    data: tuple[str, ...] = ()


def _sweep(recipe: str, *options: str, quick: tuple[str, ...] = ()) -> Callable[[str, Place], None]:
    """Run a recipe in a store of its own and export the runs."""

    def run(name: str, place: Place) -> None:
        store = place.runs / name
        chosen = quick if place.quick else options
        place.gradpivot("sweep", recipe, "--store", store, "--jobs", str(place.jobs), *chosen)
        exported = place.runs / f"{name}.jsonl"
        exported.unlink(missing_ok=True)
        place.gradpivot("store", "export", store, exported, "--no-pictures")
        # A twentieth of the size; without a time stamp equal runs give equal files.
        (place.records / f"{name}.jsonl.gz").write_bytes(gzip.compress(exported.read_bytes(), mtime=0))

    return run


def _generators(recipe: str, figure: str, *options: str) -> Callable[[str, Place], None]:
    """Run a recipe of generators, and keep the figure of samples as well."""

    def run(name: str, place: Place) -> None:
        _sweep(recipe, *options)(name, place)
        tables = place.runs / f"{name}-tables"
        place.gradpivot("compare", place.runs / name, "--out", tables)
        (drawn,) = (tables / "figures").glob("*-samples.png")
        shutil.copy(drawn, place.figures / figure)

    return run


def _script(file: str, *options: str, quick: tuple[str, ...] = ()) -> Callable[[str, Place], None]:
    """Run a benchmark that prints JSON."""

    def run(name: str, place: Place) -> None:
        chosen = quick if place.quick else options
        place.python(
            "-m", f"benchmarks.{file.removesuffix('.py')}", *chosen, "--json", into=place.records / f"{name}.json"
        )

    return run


def _reproduce(
    experiment: str, figures: dict[str, str], *options: str, quick: tuple[str, ...] = ()
) -> Callable[[str, Place], None]:
    """Run one of the paper's experiments and keep its results.json and figures, under our names."""

    def run(name: str, place: Place) -> None:
        out = place.runs / name
        place.gradpivot("reproduce", experiment, "--out", out, *(quick if place.quick else options))
        shutil.copy(out / "results.json", place.records / f"{name}.json")
        for drawn, kept in figures.items():
            shutil.copy(out / drawn, place.figures / kept)

    return run


def _speed(script: str, full: tuple[str, ...], quick: tuple[str, ...]) -> Experiment:
    return Experiment(cost="3 min", run=_script(f"{script}.py", *full, quick=quick))


def _audit(cost: str, *words: str) -> Experiment:
    """Every method against shadow models."""
    few = ("--worlds", "4", "--methods", "ga", "--store", "runs/results-quick/audit-worlds")
    return Experiment(cost=cost, run=_script("audit.py", "methods", *words, quick=("methods", *words, *few)))


def _depth(cost: str, *words: str) -> Experiment:
    """Every method under fine-tuning on retained data."""
    few = ("--rates", "0.01", "--passes", "1", "--models", "runs/results-quick/depth-models")
    return Experiment(cost=cost, run=_script("depth.py", *words, quick=(*words, *few)))


def _records(cost: str, *words: str) -> Experiment:
    """CUP and others on records, against shadow models."""
    few = ("--worlds", "4", "--methods", "CUP γ = 1", "--rivals", "--store", "runs/results-quick/records-worlds")
    return Experiment(cost=cost, run=_script("records.py", *words, quick=(*words, *few)))


_SPEED = {
    "ratios": ((), ("--only", "digits", "--steps", "12")),
    "step": (("--threads", "2"), ("--threads", "1", "--repeats", "1", "--batch", "4")),
    "training": ((), ("--steps", "2", "--only", "8×8")),
    "evaluation": (("--samples", "1000", "--repeats", "2"), ("--samples", "20", "--repeats", "1")),
    "membership": ((), ("--only", "beta")),
    "parallel": ((), ("--models", "cnn", "--steps", "2", "--repeats", "1")),
    "ddpm": (("--batch", "64"), ("--batch", "2", "--repeats", "1")),
}
"""Arguments of each benchmark, at full size and quickly."""
_RIVALS = (
    "Warm restart", "FT", "ℓ1-sparse", "EU-k", "IU", "WS", "NegGrad+", "RL", "SCRUB", "Bad Teacher", "SSD", "SFRon",
)  # fmt: skip
"""Methods that CUP is compared with on records."""
_GRADIENTS = "CUP γ = 1, gradients (shrink=1)"
_FEW = (
    "--methods", "CUP γ = 1", "CUP γ = 1, 10 % of the epochs", "CUP γ = 1, s = 0.1", _GRADIENTS,
    "--rivals", "FT", "EU-k",
)  # fmt: skip
_HARDEST = ("--methods", "CUP γ = 1", "CUP γ = 1, s = 0.1", _GRADIENTS, "--rivals", "FT", "EU-k")
_FASHION = ("--methods", "CUP γ = 1", "CUP γ = 1, s = 0.1", "--rivals", "FT")
"""Rows of the smaller tables of records."""
_GAMMAS = ("--values", *(str(tenth / 10) for tenth in range(11)))

EXPERIMENTS: dict[str, Experiment] = {
    "toy": Experiment(cost="20 s", run=_reproduce("toy", {"toy.png": "toy.png"}, quick=("--seeds", "2"))),
    "control-digits": Experiment(
        cost="6 min", run=_sweep("control-digits", quick=("--seeds", "1", "--protocols", "clean"))
    ),
    "digits": Experiment(
        cost="20 min",
        run=_sweep(
            "digits",
            "--classes",
            "3",
            "--fraction",
            "0.1",
            "--seeds",
            "3",
            quick=("--classes", "3", "--fraction", "0.1", "--seeds", "1", "--methods", "cup,ws,ga"),
        ),
    ),
    "ablation-digits": Experiment(
        cost="5 min", run=_sweep("ablation-digits", quick=("--classes", "3", "--fraction", "0.1", "--seeds", "1"))
    ),
    "audit-planted": Experiment(
        cost="10 min", run=_script("audit.py", "planted", quick=("planted", "--seeds", "2", "--level", "quick"))
    ),
    "audit-digits-class": _audit("20 min", "--classes", "3"),
    "depth-digits": _depth("2 min", "--classes", "3"),
    "records-digits": _records("30 min", "--problem", "digits_flipped", "--rivals", *_RIVALS),
    "records-tabular": _records("15 min", "--problem", "tabular", "--rivals", *_RIVALS),
    "records-few": _records("8 min", "--problem", "digits_flipped", "--fraction", "0.01", *_FEW),
    "records-hardest": _records("8 min", "--problem", "digits_flipped", "--hardest", "0.05", *_HARDEST),
    "targets": Experiment(cost="15 min", run=_script("targets.py", "--seeds", "3", quick=("--seeds", "1"))),
    "frontier": Experiment(
        cost="15 min",
        run=_script(
            "frontier.py",
            "--seeds",
            "3",
            "--store",
            "runs/results/frontier",
            quick=("--seeds", "1", "--forget", "3", "--gammas", "5", "--store", "runs/results-quick/frontier"),
        ),
    ),
    "vae": Experiment(
        cost="5 min",
        run=_reproduce("vae", {"latent-map.gif": "vae-latent-map.gif"}, *_GAMMAS, quick=("--preset", "small")),
        data=("mnist",),
    ),
    "vae-paper": Experiment(
        cost="3 min",
        run=_reproduce("vae", {}, "--protocol", "paper", quick=("--protocol", "paper", "--preset", "small")),
        data=("mnist",),
    ),
    **{f"speed-{name}": _speed(name, *sizes) for name, sizes in _SPEED.items()},
    "ablation-mnist": Experiment(cost="10 min", run=_sweep("ablation-mnist"), quick=False, data=("mnist",)),
    "records-fashion": replace(
        _records("30 min", "--problem", "fashion", "--worlds", "8", *_FASHION), quick=False, data=("fashion-mnist",)
    ),
    "depth-mnist": replace(
        _depth("15 min", "--problem", "mnist", "--classes", "3", "--passes", "2"), quick=False, data=("mnist",)
    ),
    "depth-cifar10": replace(
        _depth("2 h", "--problem", "cifar10-small", "--classes", "0", "--rates", "0.01", "--passes", "1"),
        quick=False,
        data=("cifar10",),
    ),
    "control-mnist": Experiment(cost="40 min", run=_sweep("control-mnist"), quick=False, data=("mnist",)),
    "mnist": Experiment(cost="30 min", run=_sweep("mnist-quick"), quick=False, data=("mnist",)),
    "ablation-cifar10": Experiment(cost="2 h", run=_sweep("ablation-cifar10"), quick=False, data=("cifar10",)),
    "control-cifar10": Experiment(cost="2 h", run=_sweep("control-cifar10"), quick=False, data=("cifar10",)),
    "cifar10-small": Experiment(cost="4 h", run=_sweep("cifar10-small"), quick=False, data=("cifar10",)),
    "cifar10-classes": Experiment(
        cost="40 min", run=_sweep("benchmarks/results/recipes/cifar10-classes.yaml"), quick=False, data=("cifar10",)
    ),
    "ddpm": Experiment(
        cost="2 h", run=_generators("mnist-ddpm", "ddpm-samples.png", "--methods", "cup"), quick=False, data=("mnist",)
    ),
    "fashion-classes": Experiment(
        cost="40 min",
        run=_sweep("benchmarks/results/recipes/fashion-classes.yaml"),
        quick=False,
        data=("fashion-mnist",),
    ),
    "ddpm-seeds": Experiment(
        cost="1 h",
        run=_script("generation.py", "--store", "runs/results/ddpm", "--samples", "100"),
        quick=False,
        data=("mnist",),
    ),
    "cifar10-class-cup": Experiment(
        cost="1 h",
        run=_sweep("cifar10-pretrained", "--protocols", "clean"),
        quick=False,
        data=("cifar10", "resnet18-cifar10"),
    ),
    "cifar10-other-classes": Experiment(
        cost="30 min",
        run=_sweep("cifar10-pretrained", "--protocols", "clean", "--methods", "CUP (γ = 1)", "--classes", "3,8"),
        quick=False,
        data=("cifar10", "resnet18-cifar10"),
    ),
    "cifar10-class": Experiment(
        cost="5 h",
        run=_sweep("cifar10-pretrained", "--protocols", "paper"),
        quick=False,
        data=("cifar10", "resnet18-cifar10"),
    ),
}
"""In the order in which they run, cheap ones first."""
