"""Options of the commands that run on one problem: demo, train, unlearn, judge and trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from gradpivot.cli.options.fields import COMPUTING, FORGET, HOW_MUCH, INPUTS, MODEL, SAMPLING, named
from gradpivot.evaluate import find_metric, steering_metrics
from gradpivot.experiments import list_problems
from gradpivot.methods import Retrain
from gradpivot.models import list_models
from gradpivot.results import metric_name

if TYPE_CHECKING:
    from gradpivot.methods import Method

__all__ = [
    "DemoOptions", "JudgeOptions", "ProblemOptions", "ProblemRun", "RunOptions", "TraceOptions", "TrainOptions",
    "UnlearnOptions",
]  # fmt: skip


_PROBLEMS = f"Data, model and training recipe: {', '.join(list_problems())}, or yours as my_module:my_problem."
_GENERATORS = ", ".join(name for name in list_problems() if name.endswith("-ddpm"))
_MODEL = f"Another model: {', '.join(list_models())}, my_module:make_model, timm:NAME or torchvision:NAME."


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of every command that runs something."""

    seed: int = 0
    """Random seed."""
    threads: int = field(default=1, metadata=COMPUTING)
    """CPU threads. The last digits of a result depend on it."""
    config: Path | None = field(default=None, metadata=COMPUTING)
    """Read options from this YAML file (option: value). The command line overrides it."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions(RunOptions):
    """Forget a digit, compare methods, draw the frontier.

    CUP, WS and GA against retraining. Writes results.json, results.csv, figures and report.html. Works offline and
    takes about a minute. Run the command again to resume it.

    example: gradpivot demo --out demo
    """

    out: Path = Path("demo")
    """Output folder."""
    forget: Annotated[int, tyro.conf.arg(name="class")] = 3
    """The digit to forget."""
    json: bool = False
    """Print the results as JSON."""


@dataclass(frozen=True, kw_only=True)
class ProblemRun(RunOptions):
    """Options of every command that runs on a problem."""

    problem: Annotated[str, tyro.conf.arg(help=_PROBLEMS)] = field(default="digits", metadata=MODEL)
    model: Annotated[str | None, tyro.conf.arg(help=_MODEL)] = field(default=None, metadata=MODEL)
    normalise: str | None = field(default=None, metadata=named("NAME", INPUTS))
    """Input normalisation the model expects: none ([0, 1]), cifar10, imagenet, or mean/std such as 0.5/0.25."""
    device: Literal["cpu", "cuda", "mps", "auto"] | None = field(default=None, metadata=COMPUTING)
    """Device; cpu by default, auto under torchrun."""
    precision: Literal["float32", "bfloat16", "float16"] = field(default="float32", metadata=COMPUTING)
    """Autocast dtype of forward and backward passes. Weights and scores keep the model's dtype."""
    compile: bool = field(default=False, metadata=COMPUTING)
    """Use torch.compile, for long runs."""
    workers: int = field(default=0, metadata=COMPUTING)
    """Data-loading processes for data that isn't in memory. Doesn't affect results."""
    json: bool = False
    """Print the result as JSON."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions(ProblemRun):
    """Train an original model on all of a problem's data.

    Writes settings, accuracies and weights to a folder; 'unlearn --weights' takes them. Run the command again
    to resume it. For the retrained reference use 'unlearn retrain'.

    example: gradpivot train --problem cifar10 --recipe short --threads 2 --out runs/original

    example: gradpivot unlearn cup --problem cifar10 --classes 0 --weights runs/original/model.safetensors
    """

    recipe: Literal["problem", "paper", "short"] = "problem"
    """Training recipe: the problem's own, the paper's (200 epochs), or a short one (20 epochs, one cycle)."""
    out: Path = Path("runs/train")
    """Output folder."""
    overwrite: bool = False
    """Replace a finished training in that folder."""
    evaluate_every: int = field(default=1, metadata=COMPUTING)
    """Score the test set every N epochs; 0 for the end only."""
    checkpoint_every: float = field(default=30.0, metadata=named("SECONDS", COMPUTING))
    """Seconds between checkpoints."""
    training: Retrain = field(default_factory=Retrain)
    """Training settings. --recipe replaces the defaults."""


@dataclass(frozen=True, kw_only=True)
class ProblemOptions(ProblemRun):
    """Options of every command that unlearns."""

    classes: str | None = field(default=None, metadata=FORGET)
    """These classes: 3, or 3,5, or 0-4."""
    fraction: float | None = field(default=None, metadata=FORGET)
    """A random fraction of the training data, such as 0.1."""
    indices: Path | None = field(default=None, metadata=FORGET)
    """The training samples in this file: indices, or ids with --ids. One per line, or FILE:COLUMN of a CSV."""
    ids: Path | None = field(default=None, metadata=FORGET)
    """The id of each training sample, in order: FILE or FILE:COLUMN."""
    already_forgotten: Path | None = field(default=None, metadata=named("FILE", FORGET))
    """Earlier requests: a split.json, or as --indices."""
    weights: Path | None = field(default=None, metadata=MODEL)
    """Weights to start from (.pt, .pth, .bin, .ckpt, .safetensors); without, the original is trained."""
    map: tuple[str, ...] = field(default=(), metadata=named("OLD=NEW …", INPUTS))
    """Rename keys of the weights file: fc=linear downsample=shortcut. aux=- drops a key."""
    protocol: Literal["clean", "paper"] = field(default="clean", metadata=INPUTS)
    """Defaults of the method: clean (safe) or paper (as printed)."""
    if TYPE_CHECKING:
        # Added by the parser, with every registered method as a subcommand.
        method: Method


def _until_help() -> str:
    """Help of --until with all registered metrics."""
    units: dict[str, list[str]] = {}
    for name in steering_metrics():
        units.setdefault(find_metric(name).unit.replace("%", "percent"), []).append(metric_name(name))
    listed = ", ".join(f"{', '.join(names)} {unit and f'in {unit}'}".rstrip() for unit, names in units.items())
    return f'Forget until this holds: {listed}, such as "UA>=95". Sets γ.'


@dataclass(frozen=True, kw_only=True)
class UnlearnOptions(ProblemOptions):
    """Make a model forget, by a degree γ or until conditions hold.

    Writes settings, scores, history and weights to a folder.

    example: gradpivot unlearn cup --gamma 0.5 --classes 3 --out runs/first

    example: gradpivot unlearn --classes 3 --until "UA>=95" --keep "RA>=99"

    example: gradpivot unlearn ws --forget-weight 0.1 --fraction 0.1 --json
    """

    until: Annotated[str | None, tyro.conf.arg(help=_until_help())] = field(
        default=None, metadata=named("CONDITION", HOW_MUCH)
    )
    keep: str | None = field(default=None, metadata=named("CONDITION", HOW_MUCH))
    """Keep these scores, for example "RA>=99, TA>=97". The exit status is 4 if that isn't possible."""
    classifier: Path | None = field(default=None, metadata=INPUTS)
    """Weights of the classifier that judges a generator's samples. Trained if not given."""

    out: Path = Path("runs/unlearn")
    """Output folder."""
    overwrite: bool = False
    """Replace a finished run in that folder."""


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(ProblemRun):
    """Score the samples of generators.

    A classifier counts the classes, a Fréchet distance measures quality. All models draw from the same noise. Writes
    judged.json and one sheet of samples per model. Run the command again to resume it.

    example: gradpivot judge --weights runs/run/original.safetensors runs/run/model.safetensors --classes 3

    example: gradpivot judge --weights runs/run/model.safetensors --classes 3 --features inception
    """

    problem: Annotated[str, tyro.conf.arg(help=f"{_GENERATORS}, or yours as my_module:my_problem.")] = field(
        default="mnist-ddpm", metadata=MODEL
    )
    weights: tuple[Path, ...] = field(metadata=MODEL)
    """One weights file per model (.pt, .pth, .bin, .ckpt, .safetensors)."""
    classes: str | None = field(default=None, metadata=FORGET)
    """The forgotten classes: 3, or 3,5, or 0-4."""
    out: Path = Path("runs/judged")
    """Output folder."""
    samples: int | None = None
    """Samples per class; the problem's number by default."""
    map: tuple[str, ...] = field(default=(), metadata=named("OLD=NEW …", INPUTS))
    """Rename keys of the weights files."""
    classifier: Path | None = field(default=None, metadata=INPUTS)
    """Weights of the classifier. Trained if not given."""
    features: tuple[Literal["classifier", "inception"], ...] = field(default=(), metadata=SAMPLING)
    """Features of the Fréchet distance."""
    reference_images: int | None = field(default=None, metadata=SAMPLING)
    """Maximum number of real images to compare with."""
    sampler: Literal["ddim", "ancestral"] | None = field(default=None, metadata=SAMPLING)
    """Sampling algorithm."""
    steps: int | None = field(default=None, metadata=SAMPLING)
    """Denoising steps."""
    guidance: float | None = field(default=None, metadata=SAMPLING)
    """Guidance scale s in (1 + s)·ε_c − s·ε_∅."""


@dataclass(frozen=True, kw_only=True)
class TraceOptions(ProblemOptions):
    """Run a method over its knob (γ for CUP) and draw the frontier.

    Run the command again to resume it.

    example: gradpivot trace cup --classes 3 --values 0 0.25 0.5 0.75 1

    example: gradpivot trace cup --classes 3 --pick "UA>=95" --best RA

    example: gradpivot trace cup --classes 3 --quick --no-reference
    """

    out: Path = Path("runs/trace")
    """Output folder for results.json, figures and report.html."""
    quick: bool = field(default=False, metadata=HOW_MUCH)
    """Score points on the line to one run with γ = 1."""
    points: int | None = field(default=None, metadata=HOW_MUCH)
    """Number of points of a quick trace; 11 by default."""
    values: tuple[float, ...] = field(default=(), metadata=HOW_MUCH)
    """Values of the knob; 0, 0.1, …, 1 for γ, the paper's for others."""
    reference: bool = True
    """Don't train a retrained reference."""
    pick: str | None = field(default=None, metadata=named("CONDITION"))
    """Print the point that meets a condition, for example "UA>=95, TA>=97", and keep its model."""
    best: str = field(default="RA", metadata=named("METRIC"))
    """The score that decides among points that meet --pick."""
