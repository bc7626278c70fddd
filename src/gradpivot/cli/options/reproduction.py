"""Options of 'gradpivot reproduce'."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gradpivot.cli.options.fields import COMPUTING
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
    """Output folder."""
    seeds: int = 20
    """Number of seeds for the medians, starting at 0. The figure shows --seed."""
    json: bool = False
    """Print the accuracies as JSON."""


@dataclass(frozen=True, kw_only=True)
class ReproduceDigitsOptions(RunOptions):
    """CUP, WS and GA on digits, over search spaces of equal size and several seeds.

    example: gradpivot reproduce digits --seeds 5 --out runs/digits
    """

    out: Path = Path("runs/digits")
    """Output folder. Finished runs in it are kept."""
    seeds: int = 5
    """Number of seeds, starting at --seed. Each trains its own original and reference."""
    forget: Annotated[int, tyro.conf.arg(name="class")] = 3
    """The digit to forget."""
    json: bool = False
    """Print the summary as JSON."""


@dataclass(frozen=True, kw_only=True)
class PaperSweep:
    """Options of experiments that run a sweep."""

    protocols: str = "all"
    """Only these protocols: paper (as printed) or clean (our defaults)."""
    jobs: int | None = None
    """Worker processes; one per core by default."""
    threads: int = field(default=1, metadata=COMPUTING)
    """CPU threads per run. The last digits of a result depend on it."""


@dataclass(frozen=True, kw_only=True)
class ReproduceCifar10ClassOptions(PaperSweep):
    """The paper's main experiment: a pretrained ResNet-18 forgets a class of CIFAR-10.

    Runs a sweep and compares it with the paper's numbers. Run the command again to resume it. Needs 'gradpivot data
    get cifar10 resnet18-cifar10'. A run takes about 25 minutes on two cores.

    example: gradpivot reproduce cifar10-class --classes 0 --methods cup,ws
    """

    out: Path = Path("runs/cifar10-class")
    """Output folder. Finished runs are kept in its folder 'store'."""
    preset: Literal["short", "full"] = "short"
    """short: CUP and WS at twelve settings. full: every method over the paper's spaces, and retraining."""
    classes: str | None = None
    """Forget these classes one at a time: 0, or 0,5, or 0-9. By default 0 for short, all ten for full."""
    methods: str = "all"
    """Only these methods, for example cup,ws."""
    seeds: int | None = None
    """Number of seeds, starting at 0. By default 1 for short, 5 for full."""
    json: bool = False
    """Print the comparison as JSON."""


@dataclass(frozen=True, kw_only=True)
class ReproduceVaeOptions(RunOptions):
    """The paper's VAE figure: latent maps of an MNIST VAE that forgets a digit over γ.

    Writes the maps as a figure and an animated GIF, and the share of each map that still shows the digit. Run
    the command again to resume it. Needs 'gradpivot data get mnist'; takes about five minutes on one core.

    example: gradpivot reproduce vae --out runs/vae

    example: gradpivot reproduce vae --preset small --values 0 0.5 1
    """

    out: Path = Path("runs/vae")
    """Output folder. Finished models are kept in its folder 'models'."""
    preset: Literal["full", "small"] = "full"
    """full: MNIST. small: scikit-learn's 8×8 digits, offline, in about a minute."""
    protocol: Literal["clean", "paper"] = "clean"
    """clean: a bounded forgetting loss in the decoder. paper: −ELBO in the whole model, as printed."""
    values: tuple[float, ...] = ()
    """Values of γ, one map each; 0, 0.1, 0.3, 0.5, 0.7, 0.9 by default."""
    forget: Annotated[int, tyro.conf.arg(name="class")] = 3
    """The digit to forget."""
    json: bool = False
    """Print the numbers as JSON."""


@dataclass(frozen=True, kw_only=True)
class ReproduceDdpmOptions(PaperSweep):
    """The paper's generation experiment: a diffusion model forgets a class.

    Sweeps CUP, SalUn and SA, scores samples drawn from the same noise, and writes tables, pictures and a page. Run the
    command again to resume it. Needs the extra 'diffusion'.

    example: gradpivot reproduce ddpm --preset small --out runs/ddpm

    example: gradpivot reproduce ddpm --preset full --classes 1 --methods cup --gpus 1
    """

    out: Path = Path("runs/ddpm")
    """Output folder. Finished runs are kept in its folder 'store'."""
    preset: Literal["small", "full"] = "small"
    """small: MNIST at 16×16, for a CPU; needs 'gradpivot data get mnist'. full: the paper's CIFAR-10, for GPUs."""
    classes: str | None = None
    """Forget these classes one at a time: 3, or 0-9. By default 3 for small, all ten for full."""
    methods: str = "all"
    """Only these methods, for example cup,salun."""
    seeds: int | None = None
    """Number of seeds, starting at 0; 1 by default."""
    gpus: float = field(default=0.0, metadata=COMPUTING)
    """GPUs per run."""
    json: bool = False
    """Print the comparison as JSON."""
