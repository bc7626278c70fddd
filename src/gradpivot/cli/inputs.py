"""Load what the options name: the problem, the split and the model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.cli.console import bar, wants_progress
from gradpivot.cli.options.running import ProblemOptions, ProblemRun
from gradpivot.cli.parser import look_here
from gradpivot.cli.torchrun import is_first, launched
from gradpivot.errors import GradPivotError
from gradpivot.experiments import numbers_in

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.experiments import Problem
    from gradpivot.runtime import Replicas

__all__ = [
    "check_model", "computed", "device_named", "prepare", "problem_of", "refuse_file", "set_threads", "split_of",
]  # fmt: skip


def prepare(
    chosen: ProblemOptions, device: str, replicas: Replicas | None = None
) -> tuple[Problem, ForgetSplit, nn.Module]:
    """The problem, what to forget, and the model to start from, on ``device``.

    Where that has to be trained, the first of several processes does it.
    """
    from gradpivot.runs import train_original

    if chosen.map and chosen.weights is None:
        raise GradPivotError("--map renames keys of a weights file; add --weights")
    set_threads(chosen.threads)
    problem = problem_of(chosen)
    split = split_of(
        problem, classes=chosen.classes, fraction=chosen.fraction, indices=chosen.indices, seed=chosen.seed
    )
    if chosen.model is not None:
        check_model(problem, split, chosen.model)
    if chosen.weights is not None:
        return problem, split, _loaded(problem, chosen).to(device)
    how: dict[str, Any] = {"precision": chosen.precision, "compile": chosen.compile, "replicas": replicas}
    with bar("The original model", wants_progress(chosen.json)) as report:
        return problem, split, train_original(problem, split, chosen.seed, report, device=device, **how)


def computed(chosen: ProblemRun) -> dict[str, Any]:
    """Options passed to every run of the command."""
    return {name: getattr(chosen, name) for name in ("seed", "workers", "precision", "compile")}


def problem_of(chosen: ProblemRun) -> Problem:
    """The problem that the options name, with their model; also from modules in the current folder."""
    from gradpivot.experiments import find_problem, with_model

    if chosen.normalise is not None and chosen.model is None:
        raise GradPivotError("--normalise needs --model: a problem's own model already normalises")
    look_here()
    problem = find_problem(chosen.problem)
    return problem if chosen.model is None else with_model(problem, chosen.model, chosen.normalise)


def device_named(name: str | None) -> str:
    """The kind of device that an option names, ``cpu`` or ``cuda``, if it is there and can be used.

    Raises:
        GradPivotError: if not, with the way out.
    """
    import torch

    if name is None:
        name = "auto" if launched() else "cpu"
    if name == "mps":
        raise GradPivotError(
            "--device mps cannot be used: it has no float64, in which Gram matrices and confidences are summed; use cpu"
        )
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise GradPivotError("--device cuda: torch finds no CUDA device here; use cpu, or auto")
    return "cuda" if there and name in ("cuda", "auto") else "cpu"


def check_model(problem: Problem, split: ForgetSplit, name: str) -> None:
    """Raise, before anything is trained, if the problem's model cannot be run on its data."""
    from gradpivot.runs import check_fits
    from gradpivot.runtime import isolated

    with isolated(0):
        model = problem.model()
    check_fits(
        model,
        split,
        problem.task,
        called=f"the model {name}",
        advice="bring a model that takes them as my_module:make_model",
    )


def _loaded(problem: Problem, chosen: ProblemOptions) -> nn.Module:
    """The problem's model with the weights of a file."""
    from gradpivot.models import load_foreign

    assert chosen.weights is not None
    model = problem.model()
    loaded = load_foreign(model, chosen.weights, chosen.map)
    if loaded.notes and is_first():
        sys.stderr.write(f"gradpivot: {loaded}\n")
    return model.eval()


def split_of(
    problem: Problem,
    *,
    classes: str | None = None,
    fraction: float | None = None,
    indices: Path | None = None,
    seed: int = 0,
) -> ForgetSplit:
    """The split that the options describe: exactly one of classes, fraction and indices."""
    from gradpivot.data import ForgetSplit

    if sum(given is not None for given in (classes, fraction, indices)) != 1:
        raise GradPivotError("name what to forget: one of --classes 3, --fraction 0.1 or --indices FILE")
    target = problem.target
    train, test = problem.load()
    if classes is not None:
        return ForgetSplit.by_class(train, test, numbers_in(classes), target=target)
    if fraction is not None:
        return ForgetSplit.random(train, test, fraction, seed=seed, target=target)
    assert indices is not None
    try:
        chosen = [int(line) for line in indices.read_text(encoding="utf-8").split()]
    except OSError as error:
        raise GradPivotError(f"cannot read the indices in {indices}: {error.strerror}") from None
    except ValueError as error:
        raise GradPivotError(f"{indices} must hold integers, one per line ({error})") from None
    return ForgetSplit.by_index(train, test, chosen, target=target)


def refuse_file(folder: Path) -> None:
    """Raise if the output folder is a file."""
    if folder.exists() and not folder.is_dir():
        raise GradPivotError(f"{folder} is a file; name a folder with --out")


def set_threads(threads: int) -> None:
    """Set the number of torch threads."""
    import torch

    if threads < 1:
        raise GradPivotError(f"--threads is {threads}; give 1 or more")
    torch.set_num_threads(threads)
