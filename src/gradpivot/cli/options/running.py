"""What is run on one problem: the options of demo, train, unlearn, judge and trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from gradpivot.evaluate import find_metric, steering_metrics
from gradpivot.experiments import list_problems
from gradpivot.methods import Retrain

if TYPE_CHECKING:
    from gradpivot.methods import Method

__all__ = [
    "DemoOptions", "JudgeOptions", "ProblemOptions", "ProblemRun", "RunOptions", "TraceOptions", "TrainOptions",
    "UnlearnOptions",
]  # fmt: skip


_PROBLEMS = f"{', '.join(list_problems())}, or yours as my_module:my_problem."


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What every command that runs something has."""

    seed: int = 0
    """Decides everything random; same seed, machine and thread count give the same numbers."""
    threads: int = 1
    """Threads for torch. Small models are fastest with one; sums, and so last digits, depend on it."""
    config: Path | None = None
    """Read options from this YAML file (option: value); options typed here win."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions(RunOptions):
    """Forget the digit 3 with CUP, WS and GA, and compare them with a retrained model.

    Writes results.json, results.csv, figures and report.html. Offline, about a minute. Interrupted, it continues when
    started again.

    example: gradpivot demo --out demo
    """

    out: Path = Path("demo")
    """Where the results go."""
    forget: Annotated[int, tyro.conf.arg(name="class")] = 3
    """Which digit to forget."""
    json: bool = False
    """Print the results as JSON on standard output."""


@dataclass(frozen=True, kw_only=True)
class ProblemRun(RunOptions):
    """What every command that computes on a problem of the user's has."""

    problem: Annotated[str, tyro.conf.arg(help=_PROBLEMS)] = "digits"
    model: str | None = None
    """Another model: resnet18, resnet20, resnet56, small, cnn, my_module:make_model, timm:NAME, torchvision:NAME."""
    normalise: str | None = None
    """How that model's inputs are: none ([0, 1]), cifar10, imagenet, or mean/std, for example 0.5/0.25."""
    device: Literal["cpu", "cuda", "mps", "auto"] | None = None
    """Where to compute: cpu, unless told; under torchrun auto. auto takes a CUDA device if there is one."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Number format of forward and backward passes; weights and scores stay in the model's own."""
    compile: bool = False
    """Let torch.compile make their code; pays off in long runs."""
    workers: int = 0
    """Data-loading processes for data that are not tensors; never changes a number."""
    json: bool = False
    """Print the result as JSON on standard output."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions(ProblemRun):
    """Train an original model on all of a problem's data. Killed or interrupted, the same command continues.

    Leaves a folder with settings, accuracies and weights, which 'unlearn --weights' takes. The retrained reference is
    'unlearn retrain', with the same recipe.

    example: gradpivot train --problem cifar10 --recipe short --threads 2 --out runs/original

    example: gradpivot unlearn cup --problem cifar10 --classes 0 --weights runs/original/model.safetensors
    """

    recipe: Literal["problem", "paper", "short"] = "problem"
    """The problem's own, the paper's (200 epochs) or a short one (one cycle, 20 epochs); options typed here win."""
    out: Path = Path("runs/train")
    """The folder."""
    overwrite: bool = False
    """Replace a finished training in the same folder."""
    evaluate_every: int = 1
    """Score the test set after every so many epochs; 0 for the end only. Never changes a weight."""
    checkpoint_every: float = 30.0
    """Seconds between checkpoints."""
    training: Retrain = field(default_factory=Retrain)
    """How to train. The defaults shown here are replaced by what --recipe names."""


@dataclass(frozen=True, kw_only=True)
class ProblemOptions(ProblemRun):
    """What every command that unlearns something of the user's has."""

    classes: str | None = None
    """Forget these classes: 3, or 3,5, or 0-4."""
    fraction: float | None = None
    """Forget a random fraction of the training data, for example 0.1."""
    indices: Path | None = None
    """Forget the training samples whose indices are in this file, one a line."""
    weights: Path | None = None
    """Start from these weights (.pt, .pth, .bin, .ckpt, safetensors); the original is trained anew if not given."""
    map: tuple[str, ...] = ()
    """Rename parts of the keys in the weights file: fc=linear downsample=shortcut; aux=- leaves out."""
    protocol: Literal["clean", "paper"] = "clean"
    """Defaults of the method: clean (safe) or paper (as printed)."""
    if TYPE_CHECKING:
        # The parser adds it, with every registered method as a subcommand.
        method: Method


def _until_help() -> str:
    """Read whenever options are parsed, so that a metric registered by then is in it."""
    units: dict[str, list[str]] = {}
    for name in steering_metrics():
        units.setdefault(find_metric(name).unit.replace("%", "percent"), []).append(name.upper())
    listed = ", ".join(f"{', '.join(names)} {unit and f'in {unit}'}".rstrip() for unit, names in units.items())
    return f'Forget until this holds, and no more: {listed}, for example "UA>=95" (sets CUP\'s γ).'


@dataclass(frozen=True, kw_only=True)
class UnlearnOptions(ProblemOptions):
    """Make a model forget, once. Leaves a folder with settings, scores, history and weights.

    example: gradpivot unlearn cup --gamma 0.5 --classes 3 --out runs/first

    example: gradpivot unlearn ws --forget-weight 0.1 --fraction 0.1 --json

    example: gradpivot unlearn --classes 3 --until "UA>=95" --keep "RA>=99"
    """

    until: Annotated[str | None, tyro.conf.arg(help=_until_help())] = None
    keep: str | None = None
    """While this holds, for example "RA>=99, TA>=97"; if both cannot be had, the exit status is 4."""
    classifier: Path | None = None
    """Weights of the classifier that judges a generator's samples; trained, and kept in the folder, if not given."""

    out: Path = Path("runs/unlearn")
    """The run's folder."""
    overwrite: bool = False
    """Replace a finished run in the same folder."""


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(ProblemRun):
    """Judge what generators draw: what a classifier calls their samples, and how far these are from real images.

    All models draw from the same noise. Writes judged.json and a sheet of samples a model. Killed or interrupted, the
    same command judges those models only that are missing.

    example: gradpivot judge --problem mnist-ddpm --weights runs/without-3/original.safetensors
    runs/without-3/model.safetensors
    --classes 3 --samples 500

    example: gradpivot judge --problem mnist-ddpm --weights runs/without-3/model.safetensors --classes 3 --features
    inception
    """

    problem: str = "mnist-ddpm"
    """mnist-ddpm, cifar10-ddpm, or yours as my_module:my_problem."""
    weights: tuple[Path, ...]
    """One file a model (.pt, .pth, .bin, .ckpt, safetensors)."""
    map: tuple[str, ...] = ()
    """Rename keys of the files, as of unlearn: old=new."""
    classes: str | None = None
    """What was to be forgotten: 3, or 3,5, or 0-4."""
    classifier: Path | None = None
    """Weights of the classifier; trained, and kept in the folder, if not given."""
    samples: int | None = None
    """Samples a class; as many as the problem says if not given."""
    features: tuple[Literal["classifier", "inception"], ...] = ()
    """What Fréchet distances are by; what the problem says if not given."""
    reference_images: int | None = None
    """Real images that samples are compared with, at most; as many as the problem says if not given."""
    sampler: Literal["ddim", "ancestral"] | None = None
    """How samples are drawn; what the problem says if not given."""
    steps: int | None = None
    """Denoising steps; what the problem says if not given."""
    guidance: float | None = None
    """s of the guidance (1 + s)·ε_c − s·ε_∅; what the problem says if not given."""
    out: Path = Path("runs/judged")
    """The folder."""


@dataclass(frozen=True, kw_only=True)
class TraceOptions(ProblemOptions):
    """Run a method over its knob (γ for CUP) and draw the frontier. Interrupted, it continues when started again.

    example: gradpivot trace cup --classes 3 --values 0 0.25 0.5 0.75 1

    example: gradpivot trace cup --classes 3 --pick "UA>=95" --best RA

    example: gradpivot trace cup --classes 3 --quick --no-reference
    """

    out: Path = Path("runs/trace")
    """Where results.json, figures and report.html go."""
    quick: bool = False
    """One run under the dial to γ = 1 (CUP, or another method with --gamma 1) and points on the line to it."""
    points: int | None = None
    """How many points --quick has; 11 if not given."""
    values: tuple[float, ...] = field(default=())
    """Values of the knob; 0, 0.1, …, 1 for γ, the paper's for the others."""
    reference: bool = True
    """Train a retrained reference for Δ (--no-reference to leave it out)."""
    pick: str | None = None
    """Print the point that meets a condition in percent, for example "UA>=95, TA>=97", and keep its model."""
    best: str = "RA"
    """Which score decides among the points that meet it."""
