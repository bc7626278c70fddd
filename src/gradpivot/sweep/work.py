"""A worker's job: one cell in, one record out. Caches problems, splits and originals."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load as load_tensors, save as save_tensors
from torch import nn

from gradpivot.data import ForgetSplit, world_split
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
from gradpivot.sweep.margins import scaled_margins

__all__ = [
    "base_split", "check_setting", "check_targets", "find_split", "judge_setting", "original_weights", "own_settings",
    "problem_of", "run_cell", "setting_of",
]  # fmt: skip

# Workers go through the cells target by target, so a small cache of splits and models is enough.
_CACHE_SIZE = 8
_ORIGINALS: dict[str, tuple[nn.Module, Scorer | None]] = {}
_SCORERS: dict[tuple[Any, ...], Scorer] = {}


def setting_of(problem: str, threads: int, device: str) -> Setting:
    """Everything the results on a problem depend on; loads its data once to hash them."""
    found, judge = problem_of(problem), judge_setting(problem, threads, device)
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
        original=_pretrained_digest(problem),
        retain_scored=found.retain_scored,
        judging=judging or None,
    )


def judge_setting(problem: str, threads: int, device: str) -> Setting | None:
    """Setting of the classifier that judges a generator's samples; None for other problems."""
    judging = problem_of(problem).judging
    return None if judging is None else setting_of(judging.classifier, threads, device)


def check_setting(setting: Setting) -> None:
    """Raise unless this process has the versions and data of the sweep: nodes of a cluster may differ."""
    mine = _versions(problem_of(setting.problem))
    if mine != setting.versions:
        raise GradPivotError(
            f"this worker has {mine}, the sweep {dict(setting.versions)}; install the same versions on all nodes"
        )
    here = setting_of(setting.problem, setting.threads, setting.device)
    for part in ("name", "data", "model", "training", "original", "retain_scored", "judging"):
        if getattr(here, part) != getattr(setting, part):
            raise GradPivotError(
                f"{part} of the problem {setting.problem} is {getattr(here, part)} on this worker, but "
                f"{getattr(setting, part)} in the sweep; update it on all nodes, then restart the sweep"
            )


@lru_cache(maxsize=_CACHE_SIZE)
def _structure(problem: str) -> str:
    """Digest of the model's structure and constants and the task's class."""
    found = problem_of(problem)
    with isolated():
        model = found.model()
    return digest_of([structure(model), constants(model), type(found.task).__name__])


@lru_cache(maxsize=_CACHE_SIZE)
def _pretrained_digest(problem: str) -> str | None:
    """Digest of the problem's pretrained weights; None if its original is trained here."""
    make = problem_of(problem).original
    return None if make is None else weights_digest(make())


def _versions(problem: Problem) -> dict[str, str | None]:
    """Versions that results depend on."""
    facts = environment()
    names = ("torch", "numpy", "scikit-learn", *problem.task.packages)
    packages = {name: facts["packages"][name] for name in names}
    return {"gradpivot": facts["gradpivot"], "code": facts["code"], "metrics": metrics_digest(), **packages}


def check_targets(problem: str, targets: Sequence[Mapping[str, Any]]) -> None:
    """Raise before the sweep starts if a forget set does not exist in the data."""
    scorer = problem_of(problem).scorer()
    if not scorer.metrics:
        raise GradPivotError(
            f"models of {problem} have no scores to compare; set judging= of its Problem to score their samples"
        )
    for target in targets:
        scorer.check(_split(problem, _hashable(target), 0))


def base_split(problem: str, target: Mapping[str, Any]) -> ForgetSplit:
    """The audited split that the worlds of ``target`` divide.

    Raises:
        GradPivotError: If a random subset has no seed of its own: the cell's seed is the world's.
    """
    base = {name: value for name, value in target.items() if name not in ("world", "worlds_seed")}
    if base["kind"] == "random" and "seed" not in base:
        raise GradPivotError("the target of a world is a random subset without a seed; add the audited split's seed")
    return _split(problem, _hashable(base), 0)


def own_settings(problem: str) -> Mapping[str, Any]:
    """The problem's method settings, for those that a recipe leaves unset."""
    return problem_of(problem).settings


def original_weights(
    setting: Setting,
    seed: int,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    target: Mapping[str, Any] | None = None,
) -> bytes:
    """Train the original model and return its weights in safetensors format.

    Args:
        setting: Problem, threads, device.
        seed: Seeds training.
        progress: Called with (finished steps, total steps) after every step.
        checkpoint: Checkpoint file.
        target: Forget set of a world, whose shadow model is trained on the world's data; None for all data.
    """
    torch.set_num_threads(setting.threads)
    key = setting.original_key(seed, target)
    _discard_unusable(checkpoint, key)
    problem, split = problem_of(setting.problem), _any_split(setting.problem)
    if target is not None and "world" in target:
        # A pretrained original has seen all targets, so it is no shadow of any world.
        problem, split = replace(problem, original=None), _split(setting.problem, _hashable(target), seed)
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
    """Run one cell and score the resulting model.

    Args:
        cell: The cell.
        original: Returns the original's weights, as made by :func:`original_weights`.
        checkpoint: Checkpoint file of a long run.
        progress: Called with (finished steps, total steps) after every step.
        judge: Returns the weights of the classifier that judges a generator's samples.
        shared: Cache folder shared by all workers, for statistics of real images.
    """
    started = time.perf_counter()
    torch.set_num_threads(cell.setting.threads)
    split = find_split(cell)
    scorer = _scorer(cell, judge, shared)
    model, of_original = _original(cell, original, scorer)
    if cell.role == "original":
        scores, pictures = of_original.examine(model, split)
        done = _CellResult(Point(label="Original", settings={}, scores=scores), model, pictures=pictures)
    else:
        done = _run_method(cell, split, model, scorer, checkpoint, progress)
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
        # The full history takes 20 KB per run; tables need only a few numbers of it.
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
        margins=_margins(cell, done),
    )


class _CellResult(NamedTuple):
    """Result of a cell."""

    point: Point
    model: nn.Module
    timing: Mapping[str, float] = {}
    telemetry: Mapping[str, float] = {}
    pictures: Pictures | None = None


def _run_method(
    cell: Cell, split: ForgetSplit, model: nn.Module, scorer: Scorer, checkpoint: Path | None, progress: Progress | None
) -> _CellResult:
    """Run a method or retrain the reference."""
    prepared = problem_of(cell.setting.problem).prepared(
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
    return _CellResult(result.point(), result.model, timing, telemetry(result.history), result.pictures)


def _margins(cell: Cell, done: _CellResult) -> list[float] | None:
    """The model's margins on all targets of its world; None outside worlds, and for a diverged run."""
    if cell.world is None or done.point.diverged is not None:
        return None
    base = base_split(cell.setting.problem, cell.target)
    return scaled_margins(done.model, problem_of(cell.setting.problem).task, base.train, base.forget_indices)


def _discard_unusable(path: Path | None, key: str) -> None:
    """Delete a checkpoint that cannot be resumed; the run then starts over."""
    if path is None or not path.exists():
        return
    try:
        Checkpoint(path, key, 0).load()
    except GradPivotError as error:
        sys.stderr.write(f"starting over: {error}\n")
        path.unlink(missing_ok=True)


def telemetry(history: Mapping[str, Sequence[Any]]) -> dict[str, float]:
    """Number of steps, and the shares of steps with conflicting gradients and with a rising loss.

    ``raised_`` is to first order, ``rose_`` is measured by runs that re-evaluate their losses, and ``taken_back`` is
    the share of rejected steps. A run under the dial adds the degree at the start, requested and reached.
    """
    facts: dict[str, float] = {"steps": len(history.get("step", ()))}
    shares = {"conflict": "cosine", "raised_forget": "delta_forget", "raised_retain": "delta_retain"}
    for name, column in shares.items():
        known = [value for value in history.get(column, ()) if value is not None]
        if known:
            facts[name] = sum(value < 0 if name == "conflict" else value > 0 for value in known) / len(known)
    if "taken_back" in history:
        for name, changes in zip(("rose_forget", "rose_retain"), really_changed(history), strict=True):
            facts[name] = sum(change > 0 for change in changes) / max(len(changes), 1)
        facts["taken_back"] = sum(history["taken_back"]) / max(len(history["taken_back"]), 1)
    for name in ("start", "asked", "reached"):
        if history.get(name):
            facts[name] = history[name][-1]
    return facts


def find_split(cell: Cell) -> ForgetSplit:
    """The cell's split."""
    return _split(cell.setting.problem, _hashable(cell.target), cell.seed)


@lru_cache(maxsize=_CACHE_SIZE)
def problem_of(name: str) -> Problem:
    """The cached problem of this name."""
    return find_problem(name)


@lru_cache(maxsize=_CACHE_SIZE)
def _data(problem: str) -> tuple[Any, Any]:
    return problem_of(problem).datasets()


@lru_cache(maxsize=_CACHE_SIZE)
def _any_split(problem: str) -> ForgetSplit:
    """An arbitrary split, for the original model and the data digest, which do not depend on it."""
    train, test = _data(problem)
    return ForgetSplit.by_index(train, test, [0], target=problem_of(problem).target)


_Target = tuple[tuple[str, Any], ...]


def _split(problem: str, target: _Target, seed: int) -> ForgetSplit:
    return _world(problem, target) if "world" in dict(target) else _whole_split(problem, target, seed)


# A world has its own copy of the training data, so only the current one is kept.
@lru_cache(maxsize=1)
def _world(problem: str, target: _Target) -> ForgetSplit:
    wanted = dict(target)
    return world_split(base_split(problem, wanted), wanted["world"], wanted.get("worlds_seed", 0))[0]


@lru_cache(maxsize=_CACHE_SIZE)
def _whole_split(problem: str, target: _Target, seed: int) -> ForgetSplit:
    train, test = _data(problem)
    wanted = dict(target)
    options = {"target": problem_of(problem).target, "already_forgotten": wanted.get("already_forgotten")}
    if wanted["kind"] == "class":
        return ForgetSplit.by_class(train, test, wanted["classes"], **options)
    if wanted["kind"] == "index":
        split = ForgetSplit.by_index(train, test, wanted["indices"], **options)
    else:
        split = ForgetSplit.random(train, test, wanted["fraction"], seed=wanted.get("seed", seed), **options)
    # Some methods steer by held-out data, and all must be scored on the same test data.
    return split.with_validation()


def _original(cell: Cell, weights: Callable[[], bytes], scorer: Scorer) -> tuple[nn.Module, Scorer]:
    """The original model and its scorer, cached by key."""
    key = cell.original_key
    if key not in _ORIGINALS:
        model = _load_model(problem_of(cell.setting.problem), weights, cell.setting.device)
        own = scorer.for_one_model()
        # A scorer of one model serves all targets; any other belongs to this target.
        _cache(_ORIGINALS, key, (model, None if own is scorer else own))
    model, caching = _ORIGINALS[key]
    return model, caching or scorer


def _scorer(cell: Cell, judge: Callable[[], bytes] | None, shared: Path | None) -> Scorer:
    """The cached scorer of a problem's models; real images are processed once per forget set."""
    problem = problem_of(cell.setting.problem)
    key = (cell.setting.judge_key or "", cell.setting.problem, _hashable(cell.target), cell.seed)
    if key not in _SCORERS:
        load = None if judge is None else (lambda found: _load_model(found, judge, cell.setting.device))
        # Inception statistics take many minutes, so workers share them on disk.
        kept = shared and shared / digest_of(key)
        _cache(_SCORERS, key, problem.scorer(load, folder=kept))
    return _SCORERS[key]


def _load_model(problem: Problem, weights: Callable[[], bytes], device: str) -> nn.Module:
    model = problem.model()
    model.load_state_dict(load_tensors(weights()))
    return model.to(device).eval()


def _cache(cached: dict[Any, Any], key: Any, value: Any) -> None:
    """Add an entry, evicting the oldest if the cache is full."""
    while len(cached) >= _CACHE_SIZE:
        cached.pop(next(iter(cached)))
    cached[key] = value


def _hashable(target: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, tuple(v) if isinstance(v, list | tuple) else v) for name, v in target.items())
