"""What a worker does: one cell in, one record out. Problems, splits and originals are kept at hand."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load as load_tensors, save as save_tensors
from torch import nn

from gradpivot.data import ForgetSplit
from gradpivot.errors import GradPivotError
from gradpivot.evaluate import Pictures, Scorer, metrics_digest
from gradpivot.experiments import Problem, find_problem
from gradpivot.loop import Checkpoint, Progress
from gradpivot.methods import make_method
from gradpivot.models import constants, structure, weights_digest
from gradpivot.results import Point, Record, really_changed
from gradpivot.runs import train_original
from gradpivot.runtime import environment, isolated
from gradpivot.sweep.cell import Cell, Setting, digest_of

__all__ = [
    "check_setting", "check_targets", "judge_setting", "original_weights", "own_settings", "run_cell", "setting_of",
]  # fmt: skip

# A worker walks through the cells target by target, so a few splits and models at hand are enough.
_AT_HAND = 8
_ORIGINALS: dict[str, tuple[nn.Module, Scorer | None]] = {}
_SCORERS: dict[tuple[Any, ...], Scorer] = {}


def setting_of(problem: str, threads: int, device: str) -> Setting:
    """What the numbers on a problem depend on; loads its data once to take their digest."""
    found, judge = _problem(problem), judge_setting(problem, threads, device)
    judging = judge and found.judging and {**found.judging.to_dict(), "classifier_key": judge.original_key(0)}
    return Setting(
        problem=problem,
        name=found.name,
        data=_any_split(problem).data_digest,
        model=_structure(problem),
        training=found.training.to_dict(),
        versions=_versions(found),
        threads=threads,
        device=device,
        original=_given_original(problem),
        retain_scored=found.retain_scored,
        judging=judging or None,
    )


def judge_setting(problem: str, threads: int, device: str) -> Setting | None:
    """The setting of the classifier that judges a generator's samples; None for a problem of models that predict."""
    judging = _problem(problem).judging
    return None if judging is None else setting_of(judging.classifier, threads, device)


def check_setting(setting: Setting) -> None:
    """Raise unless this process has what the sweep's keys speak of: a cluster may be of many versions and data."""
    mine = _versions(_problem(setting.problem))
    if mine != setting.versions:
        raise GradPivotError(
            f"this worker has {mine}, the sweep {dict(setting.versions)}; install the same versions everywhere"
        )
    here = setting_of(setting.problem, setting.threads, setting.device)
    for part in ("name", "data", "model", "training", "original", "retain_scored", "judging"):
        if getattr(here, part) != getattr(setting, part):
            raise GradPivotError(
                f"the problem {setting.problem} has another {part} on this worker ({getattr(here, part)}) than in the "
                f"sweep ({getattr(setting, part)}); bring it up to date everywhere, then start the sweep again"
            )


@lru_cache(maxsize=_AT_HAND)
def _structure(problem: str) -> str:
    """The model's structure and constants, and the task's class, as a digest."""
    found = _problem(problem)
    with isolated():
        model = found.model()
    return digest_of([structure(model), constants(model), type(found.task).__name__])


@lru_cache(maxsize=_AT_HAND)
def _given_original(problem: str) -> str | None:
    """The digest of the weights that a problem brings; None if its original is trained here."""
    make = _problem(problem).original
    return None if make is None else weights_digest(make())


def _versions(problem: Problem) -> dict[str, str | None]:
    """The versions that numbers depend on."""
    facts = environment()
    names = ("torch", "numpy", "scikit-learn", *problem.task.packages)
    packages = {name: facts["packages"][name] for name in names}
    return {"gradpivot": facts["gradpivot"], "code": facts["code"], "metrics": metrics_digest(), **packages}


def check_targets(problem: str, targets: Sequence[Mapping[str, Any]]) -> None:
    """Raise, before anything runs, if something is to be forgotten that the data do not have."""
    scorer = _problem(problem).scorer()
    if not scorer.metrics:
        raise GradPivotError(
            f"the models of {problem} have no scores to compare; give its Problem judging=, so that samples are judged"
        )
    for target in targets:
        scorer.check(_split(problem, _hashable(target), 0))


def own_settings(problem: str) -> Mapping[str, Any]:
    """The method settings that suit a problem, for what a recipe leaves open."""
    return _problem(problem).settings


def original_weights(
    setting: Setting, seed: int, progress: Progress | None = None, checkpoint: Path | None = None
) -> bytes:
    """Train the original model and give its weights as a safetensors file's content."""
    torch.set_num_threads(setting.threads)
    key = setting.original_key(seed)
    _discard_unusable(checkpoint, key)
    problem, split = _problem(setting.problem), _any_split(setting.problem)
    model = train_original(problem, split, seed, progress, device=setting.device, checkpoint=checkpoint, key=key)
    state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    return save_tensors(state)


def run_cell(
    cell: Cell,
    original: Callable[[], bytes],
    checkpoint: Path | None = None,
    progress: Progress | None = None,
    judge: Callable[[], bytes] | None = None,
    shared: Path | None = None,
) -> Record:
    """Run one cell and score what comes out.

    Args:
        cell: What to run.
        original: Gives the original model's weights, as :func:`original_weights` made them.
        checkpoint: Where a long run keeps a resumable state.
        progress: Called with (steps done, steps in all) after every step.
        judge: Gives the weights of the classifier that judges a generator's samples.
        shared: A folder for what all workers need and only one should compute: statistics of real images.
    """
    started = time.perf_counter()
    torch.set_num_threads(cell.setting.threads)
    split = _split(cell.setting.problem, _hashable(cell.target), cell.seed)
    scorer = _scorer(cell, judge, shared)
    model, of_original = _original(cell, original, scorer)
    if cell.role == "original":
        scores, pictures = of_original.examine(model, split)
        done = _Done(Point(label="Original", settings={}, scores=scores), pictures=pictures)
    else:
        done = _unlearned(cell, split, model, scorer, checkpoint, progress)
    return Record(
        key=cell.key,
        problem=cell.setting.name,
        kind=split.kind,
        forget=cell.forget,
        seed=cell.seed,
        role=cell.role,
        protocol=cell.protocol,
        series=cell.series,
        method=str(cell.method.get("method", "")),
        # The steps' telemetry is 20 KB a run; what tables can use of it is three numbers.
        point=Point.from_dict({**done.point.to_dict(), "history": {}}),
        provenance={
            "setting_key": cell.setting.key,
            "cell": cell.to_dict(),
            "split": split.facts(),
            "environment": environment(cell.setting.device),
            "telemetry": done.telemetry,
            "timing": {**done.timing, "total": time.perf_counter() - started},
        },
        pictures=done.pictures,
    )


class _Done(NamedTuple):
    """What came of a cell."""

    point: Point
    timing: Mapping[str, float] = {}
    telemetry: Mapping[str, float] = {}
    pictures: Pictures | None = None


def _unlearned(
    cell: Cell, split: ForgetSplit, model: nn.Module, scorer: Scorer, checkpoint: Path | None, progress: Progress | None
) -> _Done:
    """A method's run, or the reference."""
    prepared = _problem(cell.setting.problem).prepared(
        model,
        split,
        make_method(cell.method),
        seed=cell.seed,
        progress=progress,
        checkpoint=checkpoint,
        keep_checkpoint=True,
        scorer=scorer,
    )
    _discard_unusable(checkpoint, prepared.key)
    result = prepared.run()
    timing = {"unlearning": result.seconds, "evaluation": result.evaluation_seconds}
    return _Done(result.point(), timing, telemetry(result.history), result.pictures)


def _discard_unusable(path: Path | None, key: str) -> None:
    """A checkpoint that cannot be continued from is thrown away: the run starts over, as its owner would have it."""
    if path is None or not path.exists():
        return
    try:
        Checkpoint(path, key, 0).load()
    except GradPivotError as error:
        sys.stderr.write(f"started over: {error}\n")
        path.unlink(missing_ok=True)


def telemetry(history: Mapping[str, Sequence[Any]]) -> dict[str, float]:
    """Steps, and on which share of them the gradients conflicted and the optimiser's step raised a loss.

    ``raised_`` is to first order; ``rose_`` is what a run saw that looked at its losses again, and ``taken_back`` is
    the share of steps that it undid. A run under the dial also has the degree it started at, was asked for and reached.
    """
    told: dict[str, float] = {"steps": len(history.get("step", ()))}
    shares = {"conflict": "cosine", "raised_forget": "delta_forget", "raised_retain": "delta_retain"}
    for name, column in shares.items():
        known = [value for value in history.get(column, ()) if value is not None]
        if known:
            told[name] = sum(value < 0 if name == "conflict" else value > 0 for value in known) / len(known)
    if "taken_back" in history:
        for name, changes in zip(("rose_forget", "rose_retain"), really_changed(history), strict=True):
            told[name] = sum(change > 0 for change in changes) / max(len(changes), 1)
        told["taken_back"] = sum(history["taken_back"]) / max(len(history["taken_back"]), 1)
    for name in ("start", "asked", "reached"):
        if history.get(name):
            told[name] = history[name][-1]
    return told


@lru_cache(maxsize=_AT_HAND)
def _problem(name: str) -> Problem:
    return find_problem(name)


@lru_cache(maxsize=_AT_HAND)
def _data(problem: str) -> tuple[Any, Any]:
    return _problem(problem).load()


@lru_cache(maxsize=_AT_HAND)
def _any_split(problem: str) -> ForgetSplit:
    """Some split: what is forgotten does not matter to the original model or the data's digest."""
    train, test = _data(problem)
    return ForgetSplit.by_index(train, test, [0], target=_problem(problem).target)


@lru_cache(maxsize=_AT_HAND)
def _split(problem: str, target: tuple[tuple[str, Any], ...], seed: int) -> ForgetSplit:
    train, test = _data(problem)
    wanted = dict(target)
    if wanted["kind"] == "class":
        return ForgetSplit.by_class(train, test, wanted["classes"], target=_problem(problem).target)
    split = ForgetSplit.random(train, test, wanted["fraction"], seed=seed, target=_problem(problem).target)
    # One of the methods steers by never-seen data, and all must be scored on the same.
    return split.with_validation()


def _original(cell: Cell, weights: Callable[[], bytes], scorer: Scorer) -> tuple[nn.Module, Scorer]:
    """The original model, by its key, and what scores it: the weights of the last few are not read again."""
    key = cell.original_key
    if key not in _ORIGINALS:
        model = _loaded(_problem(cell.setting.problem), weights, cell.setting.device)
        own = scorer.of_one_model()
        # One that remembers its model serves all targets; any other is of this target.
        _at_hand(_ORIGINALS, key, (model, None if own is scorer else own))
    model, remembering = _ORIGINALS[key]
    return model, remembering or scorer


def _scorer(cell: Cell, judge: Callable[[], bytes] | None, shared: Path | None) -> Scorer:
    """The scorer of a problem's models; real images are looked at once for each thing to forget."""
    problem = _problem(cell.setting.problem)
    key = (cell.setting.judge_key or "", cell.setting.problem, _hashable(cell.target), cell.seed)
    if key not in _SCORERS:
        load = None if judge is None else (lambda found: _loaded(found, judge, cell.setting.device))
        # By Inception's features they take many minutes, in every worker that has to make them itself.
        kept = shared and shared / digest_of(key)
        _at_hand(_SCORERS, key, problem.scorer(load, folder=kept))
    return _SCORERS[key]


def _loaded(problem: Problem, weights: Callable[[], bytes], device: str) -> nn.Module:
    model = problem.model()
    model.load_state_dict(load_tensors(weights()))
    return model.to(device).eval()


def _at_hand(kept: dict[Any, Any], key: Any, value: Any) -> None:
    """Keep it in the place of the oldest, if there are too many."""
    while len(kept) >= _AT_HAND:
        kept.pop(next(iter(kept)))
    kept[key] = value


def _hashable(target: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, tuple(v) if isinstance(v, list | tuple) else v) for name, v in target.items())
