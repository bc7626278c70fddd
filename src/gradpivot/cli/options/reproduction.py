"""What is taken from the paper: the options of 'gradpivot reproduce'."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gradpivot.cli.options.running import RunOptions

__all__ = [
    "ReproduceCifar10ClassOptions", "ReproduceDdpmOptions", "ReproduceDigitsOptions", "ReproduceToyOptions",
    "ReproduceVaeOptions",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReproduceToyOptions(RunOptions):
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
class ReproduceDigitsOptions(RunOptions):
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
class PaperSweep:
    """What every experiment of the paper has that is a sweep."""

    protocols: str = "all"
    """Only these protocols: paper (as printed) or clean (our defaults)."""
    jobs: int | None = None
    """Runs at once; as many as there are cores if not given."""
    threads: int = 1
    """Threads of each run; last digits depend on it."""


@dataclass(frozen=True, kw_only=True)
class ReproduceCifar10ClassOptions(PaperSweep):
    """The paper's main experiment: forgetting a class of CIFAR-10, from a pretrained ResNet-18.

    A sweep and its comparison with the paper's numbers; killed or interrupted, the same command goes on. Needs
    'gradpivot data get cifar10 resnet18-cifar10'. A run takes about 25 minutes of two cores.

    example: gradpivot reproduce cifar10-class --classes 0 --methods cup,ws
    """

    out: Path = Path("runs/cifar10-class")
    """Where the tables, figures and the page go; finished runs are kept in its folder 'store'."""
    preset: Literal["short", "full"] = "short"
    """short: CUP and WS at twelve settings. full: every method over the paper's spaces with a retrained reference."""
    classes: str | None = None
    """Forget these classes, one at a time: 0, or 0,5, or 0-9. 0 for short and all ten for full if not given."""
    methods: str = "all"
    """Only these methods, for example cup,ws."""
    seeds: int | None = None
    """How many seeds, from 0 on: 1 for short, 5 for full if not given."""
    json: bool = False
    """Print the standings as JSON on standard output."""


@dataclass(frozen=True, kw_only=True)
class ReproduceVaeOptions(RunOptions):
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
class ReproduceDdpmOptions(PaperSweep):
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
    seeds: int | None = None
    """How many seeds, from 0 on; 1 if not given."""
    gpus: float = 0.0
    """GPUs of each run."""
    json: bool = False
    """Print the comparison as JSON on standard output."""
