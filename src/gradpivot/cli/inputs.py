"""What the options name, loaded: the problem, what to forget, the model to start from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.cli.console import bar, wants_bars
from gradpivot.cli.options import ProblemOptions, ProblemRun
from gradpivot.errors import GradPivotError
from gradpivot.methods.retrain import Retrain
from gradpivot.recipes.recipe import filled, numbers_in

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data.split import ForgetSplit
    from gradpivot.recipes.problem import Problem

__all__ = ["device_named", "prepare", "problem_of", "refuse_file", "set_threads", "split_of", "suited"]


def prepare(chosen: ProblemOptions) -> tuple[Problem, ForgetSplit, nn.Module]:
    """The problem, what to forget, and the model to start from."""
    from gradpivot.sweep.original import train_original
    from gradpivot.weights import load_weights

    set_threads(chosen.threads)
    device = device_named(chosen.device)
    problem = problem_of(chosen)
    split = split_of(
        problem, classes=chosen.classes, fraction=chosen.fraction, indices=chosen.indices, seed=chosen.seed
    )
    if chosen.weights is not None:
        model = problem.model()
        load_weights(model, chosen.weights)
        return problem, split, model.to(device).eval()
    with bar("Training the original model", wants_bars(chosen.json)) as report:
        model = train_original(
            problem,
            split,
            chosen.seed,
            report,
            device=device,
            precision=chosen.precision,
            compile=chosen.compile,
        )
    return problem, split, model


def problem_of(chosen: ProblemRun) -> Problem:
    """The problem that the options name, also one in a module where the user stands."""
    from gradpivot.recipes.problem import find_problem

    # A console script, unlike "python -m", does not look for modules there.
    sys.path.insert(0, str(Path.cwd()))
    return find_problem(chosen.problem)


def device_named(name: str) -> str:
    """The device that an option names, if it is there and can be used.

    Raises:
        GradPivotError: if not, with the way out.
    """
    import torch

    if name == "mps":
        raise GradPivotError(
            "--device mps cannot be used: it has no float64, in which Gram matrices and confidences are summed; use cpu"
        )
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise GradPivotError("--device cuda: torch finds no CUDA device here; use cpu, or auto")
    return "cuda" if there and name in ("cuda", "auto") else "cpu"


def split_of(
    problem: Problem,
    *,
    classes: str | None = None,
    fraction: float | None = None,
    indices: Path | None = None,
    seed: int = 0,
) -> ForgetSplit:
    """The split that the options describe: exactly one of classes, fraction and indices."""
    from gradpivot.data.split import ForgetSplit

    if sum(given is not None for given in (classes, fraction, indices)) != 1:
        raise GradPivotError("say what to forget: one of --classes 3, --fraction 0.1 or --indices FILE")
    target = getattr(problem.task, "target_of", None)
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
        raise GradPivotError(f"{indices} must hold whole numbers, one a line ({error})") from None
    return ForgetSplit.by_index(train, test, chosen, target=target)


def suited(method: Any, problem: Problem) -> Any:
    """The method with the problem's own settings where the user left them open; a training recipe has none of these."""
    return method if isinstance(method, Retrain) else filled(method, problem.settings)


def refuse_file(folder: Path) -> None:
    """Raise if what should become a folder is a file."""
    if folder.exists() and not folder.is_dir():
        raise GradPivotError(f"{folder} is a file; name a folder with --out")


def set_threads(threads: int) -> None:
    """How many threads torch uses in this process."""
    import torch

    if threads < 1:
        raise GradPivotError(f"--threads is {threads}; give 1 or more")
    torch.set_num_threads(threads)
