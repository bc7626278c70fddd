"""Load the problem, the split and the model from the options."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.cli.console import bar, wants_progress
from gradpivot.cli.options.running import ProblemOptions, ProblemRun, TraceOptions, UnlearnOptions
from gradpivot.cli.torchrun import is_first, launched
from gradpivot.errors import GradPivotError, check_parallel
from gradpivot.experiments import numbers_in

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.experiments import Problem
    from gradpivot.runtime import Replicas

__all__ = [
    "check_model", "check_options", "computed", "device_named", "load_split", "original_of", "output_folder", "prepare",
    "problem_of", "refuse_file", "samples_in", "set_threads", "split_of",
]  # fmt: skip


def check_options(chosen: ProblemOptions) -> None:
    """Raise for options that are wrong for any data. Needs no torch, so that the error comes at once."""
    _check_one_forget_set(chosen.classes, chosen.fraction, chosen.indices)
    if chosen.ids is not None and chosen.indices is None:
        raise GradPivotError("--ids gives the ids of the training samples; name those to forget with --indices FILE")
    if chosen.map and chosen.weights is None:
        raise GradPivotError("--map renames keys of a weights file; add --weights")
    if chosen.already_forgotten is not None and chosen.weights is None:
        raise GradPivotError(
            "--already-forgotten needs the model that forgot it, and a new original has not; add --weights with the "
            "last run's model.safetensors"
        )
    if chosen.weights is not None and not chosen.weights.exists():
        raise GradPivotError(f"there is no weights file {chosen.weights}")


def prepare(
    chosen: UnlearnOptions | TraceOptions, device: str, replicas: Replicas | None = None
) -> tuple[Problem, ForgetSplit, nn.Module]:
    """Load the problem, the split and the original model onto ``device``; see :func:`original_of`."""
    problem, split = load_split(chosen)
    return problem, split, original_of(chosen, problem, split, device, replicas)


def load_split(chosen: ProblemOptions) -> tuple[Problem, ForgetSplit]:
    """Load the problem and the split."""
    set_threads(chosen.threads)
    problem = problem_of(chosen)
    names = ("classes", "fraction", "indices", "ids", "already_forgotten", "seed")
    split = split_of(problem, **{name: getattr(chosen, name) for name in names})
    if chosen.model is not None:
        check_model(problem, split, chosen.model)
    return problem, split


def original_of(
    chosen: UnlearnOptions | TraceOptions,
    problem: Problem,
    split: ForgetSplit,
    device: str,
    replicas: Replicas | None = None,
) -> nn.Module:
    """Load the original model onto ``device``, or train it without ``--weights``.

    Training resumes from a checkpoint in the output folder, which also keeps the trained model for the next attempt.
    With several processes, only the first one trains.
    """
    from gradpivot.runs import original_file, original_model

    if chosen.weights is not None:
        return _load_model(problem, chosen).to(device)
    how: dict[str, Any] = {"device": device, "precision": chosen.precision, "compile": chosen.compile}
    file = original_file(chosen.out, problem, split, chosen.seed, **how)
    with bar("Preparing the original", wants_progress(chosen.json)) as report:
        return original_model(problem, split, chosen.seed, file, report, replicas=replicas, **how)


def computed(chosen: ProblemRun) -> dict[str, Any]:
    """Run options shared by all runs of a command."""
    return {name: getattr(chosen, name) for name in ("seed", "workers", "precision", "compile")}


def problem_of(chosen: ProblemRun) -> Problem:
    """Load the chosen problem, with ``--model`` if given; also from modules in the current folder."""
    from gradpivot.experiments import find_problem, with_model

    if chosen.normalise is not None and chosen.model is None:
        raise GradPivotError("--normalise needs --model: a problem's own model already normalises its inputs")
    problem = find_problem(chosen.problem)
    return problem if chosen.model is None else with_model(problem, chosen.model, chosen.normalise)


def device_named(name: str | None) -> str:
    """Resolve ``--device`` to ``cpu`` or ``cuda``.

    Raises:
        GradPivotError: If the device is missing or not supported.
    """
    import torch

    if name is None:
        name = "auto" if launched() else "cpu"
    if name == "mps":
        raise GradPivotError(
            "--device mps is not supported: it lacks float64, which Gram matrices and confidences need; use cpu"
        )
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise GradPivotError("--device cuda: torch finds no CUDA device; use cpu or auto")
    return "cuda" if available and name in ("cuda", "auto") else "cpu"


def check_model(problem: Problem, split: ForgetSplit, name: str) -> None:
    """Raise, before training starts, if the problem's model does not fit its data."""
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


def _load_model(problem: Problem, chosen: ProblemOptions) -> nn.Module:
    """Load ``--weights`` into the problem's model."""
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
    ids: Path | None = None,
    already_forgotten: Path | None = None,
    seed: int = 0,
) -> ForgetSplit:
    """Build the split from exactly one of classes, fraction and indices, without what is already forgotten.

    With ``ids`` the files of the latter two hold ids.
    """
    from gradpivot.data import ForgetSplit

    _check_one_forget_set(classes, fraction, indices)
    train, test = problem.datasets()
    earlier: Path | list[int] | None = already_forgotten
    if already_forgotten is not None and already_forgotten.suffix != ".json":
        # A saved split stays a path; any other file lists records.
        earlier = samples_in(already_forgotten, ids, len(train))
    options = {"target": problem.target, "already_forgotten": earlier}
    if classes is not None:
        return ForgetSplit.by_class(train, test, numbers_in(classes), **options)
    if fraction is not None:
        return ForgetSplit.random(train, test, fraction, seed=seed, **options)
    assert indices is not None
    return ForgetSplit.by_index(train, test, samples_in(indices, ids, len(train)), **options)


def samples_in(file: Path, ids: Path | None, n_train: int) -> list[int]:
    """The indices of the training samples that a file lists, each once; reports repeated entries and ids.

    Args:
        file: Holds indices, or ids if ``ids`` is given.
        ids: Holds the id of each training sample.
        n_train: The number of training samples.
    """
    from gradpivot.data import find_records, read_entries, read_indices

    entries: list[Any] = read_indices(file) if ids is None else read_entries(file)
    chosen = list(dict.fromkeys(entries))
    found = chosen if ids is None else find_records(chosen, read_entries(ids), n_train)
    facts = []
    if ids is not None:
        stand = "id stands" if len(chosen) == 1 else "ids stand"
        facts.append(f"{len(chosen):,} {stand} for {len(found):,} of {n_train:,} training samples")
    if len(chosen) < len(entries):
        facts.append(f"repeated entries of {file}: {len(entries) - len(chosen):,} of {len(entries):,}")
    if facts and is_first():
        sys.stderr.write(f"gradpivot: {'; '.join(facts)}\n")
    return found


def _check_one_forget_set(classes: str | None, fraction: float | None, indices: Path | None) -> None:
    options = {"--classes": classes, "--fraction": fraction, "--indices": indices}
    given = [name for name, value in options.items() if value is not None]
    if not given:
        raise GradPivotError("name what to forget: one of --classes 3, --fraction 0.1 or --indices FILE")
    if len(given) > 1:
        raise GradPivotError(f"{' and '.join(given)} both name what to forget; give only one of them")


def refuse_file(folder: Path) -> None:
    """Raise if the output folder is a file."""
    if folder.exists() and not folder.is_dir():
        raise GradPivotError(f"{folder} is a file; name a folder with --out")


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Hold the output folder for the command, so that no other one writes there; the first process holds it for all.

    Raises:
        GradPivotError: If it is a file, cannot be written, or another command is using it.
    """
    from gradpivot.runtime import exclusive

    refuse_file(folder)
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise GradPivotError(f"{folder} cannot be written: no write access to {existing}; choose another with --out")
    with exclusive(folder) if is_first() else nullcontext():
        yield


def set_threads(threads: int) -> None:
    """Set the number of torch threads."""
    import torch

    check_parallel("--threads", threads)
    torch.set_num_threads(threads)
