"""The commands train, unlearn and rerun."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.cli import options
from gradpivot.cli.console import (
    bar,
    quiet,
    say,
    say_json,
    say_result,
    say_shortfall,
    say_trained,
    scores_line,
    wants_progress,
    watched_training,
)
from gradpivot.cli.dispatch import DIVERGED, UNMET, run
from gradpivot.cli.inputs import (
    check_model,
    check_options,
    computed,
    device_named,
    load_split,
    original_of,
    output_folder,
    problem_of,
    set_threads,
)
from gradpivot.cli.interrupt import terminating
from gradpivot.cli.torchrun import device_of_process, is_first, joined
from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.evaluate import Scored
    from gradpivot.runs import Prepared
    from gradpivot.runtime import Replicas
    from gradpivot.targets import Targets

__all__: list[str] = []

_CHANCE_FACTOR = 1.2
"""Warn below this multiple of chance accuracy: the weights were probably loaded wrongly."""


@run.register
def _(chosen: options.TrainOptions) -> int:
    with output_folder(chosen.out):
        return _train(chosen)


def _train(chosen: options.TrainOptions) -> int:
    from gradpivot.runs import everything, finished_run, staged, train_model, write_training
    from gradpivot.sweep import digest_of

    device = device_named(chosen.device)
    settings = {"evaluate_every": chosen.evaluate_every, **chosen.training.to_dict()}
    config = {**_run_options(chosen, device), **settings}
    request, checkpoint = digest_of(config), chosen.out / "checkpoint.pt"
    if not chosen.overwrite and (metrics := finished_run(chosen.out, request)) is not None:
        checkpoint.unlink(missing_ok=True)
        return _say_finished(chosen, metrics)
    set_threads(chosen.threads)
    problem = problem_of(chosen)
    data = everything(problem)
    if chosen.model is not None:
        check_model(problem, data, chosen.model)
    watched = watched_training(f"Training {problem.name}", chosen.training.epochs, chosen.json)
    with terminating(), watched as (progress, on_epoch):
        run_options = {
            "evaluate_every": chosen.evaluate_every,
            "progress": progress,
            "tell": on_epoch,
            **computed(chosen),
        }
        run_options |= {"checkpoint": checkpoint, "checkpoint_seconds": chosen.checkpoint_every}
        trained = train_model(problem, chosen.training, data=data, device=device, **run_options)
    with staged(chosen.out) as folder:
        write_training(folder, config, trained, request)
    checkpoint.unlink(missing_ok=True)
    if chosen.json:
        say_json((chosen.out / "metrics.json").read_text(encoding="utf-8"))
    else:
        named = {name: getattr(chosen, name) for name in ("problem", "model", "normalise")}
        say_trained(trained, " ".join(f"--{name} {value}" for name, value in named.items() if value), chosen.out)
    return DIVERGED if trained.diverged else 0


@run.register
def _(chosen: options.UnlearnOptions) -> int:
    from gradpivot.targets import Targets

    # Report invalid options before torch is imported and training starts.
    check_options(chosen)
    aimed = chosen.until is not None or chosen.keep is not None
    targets = Targets.read(chosen.until, chosen.keep) if aimed else None
    kind = device_named(chosen.device)
    with output_folder(chosen.out), joined(kind) as replicas, nullcontext() if replicas.is_first else quiet():
        return _unlearn(chosen, targets, kind, replicas)


@run.register
def _(chosen: options.RerunOptions) -> int:
    from gradpivot.cli.judging import KEPT
    from gradpivot.cli.parser import parse
    from gradpivot.results import read_scores
    from gradpivot.runs import read_config, read_metrics

    config, before = read_config(chosen.folder), read_metrics(chosen.folder)
    # The original was saved with the model's own keys, the split holds indices, and only you decide what is replaced.
    for name in ("map", "ids", "overwrite"):
        config.pop(name, None)
    with tempfile.TemporaryDirectory() as scratch:
        out = chosen.out or Path(scratch) / "run"
        file = Path(scratch) / "config.yaml"
        file.write_text(json.dumps(config, default=str), encoding="utf-8")
        words = ["unlearn", "--config", str(file), "--out", str(out)]
        words += ["--weights", str(chosen.folder / "original.safetensors")]
        if (chosen.folder / KEPT).exists():
            words += ["--classifier", str(chosen.folder / KEPT)]
        if "indices" in config:
            words += ["--indices", str(_saved_indices(chosen.folder, Path(scratch)))]
        if "already_forgotten" in config:
            words += ["--already-forgotten", str(_saved_indices(chosen.folder, Path(scratch), "already_forgotten"))]
        with quiet():
            status = run(parse(words))
        after = read_metrics(out)
    then, now = before["scores"], after["scores"]
    different = [name for name in then if then[name] != now.get(name)]
    if different:
        differences = ", ".join(f"{name} {then[name]} then, {now.get(name, 'not measured')} now" for name in different)
        raise GradPivotError(
            f"the second run scored differently: {differences}. Compare environment.json: versions, threads or the "
            f"machine may differ"
        )
    if after["diverged"]:
        say("The run diverged again; there are no scores to compare")
        return DIVERGED
    try:
        line = scores_line(read_scores(now), after["provenance"]["split"]["kind"])
    except (KeyError, TypeError, ValueError):  # a third-party scorer
        line = json.dumps(now)
    say(f"The same scores to the last digit: {line}")
    return status


def _unlearn(chosen: options.UnlearnOptions, targets: Targets | None, kind: str, replicas: Replicas) -> int:
    """Run a method, or search for a target. All processes compute; the first one writes and prints."""
    from gradpivot.cli.judging import scorer_in
    from gradpivot.runs import finished_run, staged, write_run
    from gradpivot.targets import Targeted, check_steerable, check_walkable, unlearn_until

    if targets is not None:
        check_walkable(chosen.method)
        check_steerable(targets, problem_of(chosen).scorer())
    device = device_of_process(kind)
    problem, split = load_split(chosen)
    request = _request(chosen, kind, split)
    if not chosen.overwrite and (metrics := finished_run(chosen.out, request)) is not None:
        _remove_checkpoints(chosen, replicas)
        return _say_finished(chosen, metrics)
    model = original_of(chosen, problem, split, device, replicas)
    # Samples are judged by class; a generator that forgets single records is scored by its losses.
    scorer = None
    if split.kind == "class" and problem.judging is not None:
        scorer = scorer_in(problem, chosen.out, device, chosen.classifier, quiet=chosen.json)
    # If a process is lost, torchrun sends SIGTERM to the others; the one that noticed reports it.
    ending = terminating() if replicas.size == 1 else nullcontext()
    with ending, bar(chosen.method.title, wants_progress(chosen.json)) as report:
        prepared = problem.prepared(
            model,
            split,
            chosen.method,
            searches=targets is not None,
            progress=report,
            checkpoint=chosen.out / "checkpoint.pt",
            keep_checkpoint=True,
            replicas=replicas,
            scorer=scorer,
            **computed(chosen),
        )
        original = _original_scores(prepared)
        result = prepared.run() if targets is None else unlearn_until(prepared, targets)
    status = DIVERGED if result.diverged else UNMET if result.missed else 0
    if not replicas.is_first:
        return status
    with staged(chosen.out) as folder:
        _save_original(model, chosen, folder)
        write_run(folder, _config(chosen, kind, prepared.method), prepared.split, result, original, request)
    _remove_checkpoints(chosen, replicas)
    if chosen.json:
        say_json((chosen.out / "metrics.json").read_text(encoding="utf-8"))
    else:
        say_result(result, original, chosen.out)
        if isinstance(result, Targeted) and result.met:
            say(result.verdict)
    say_shortfall(result)
    return status


def _request(chosen: options.UnlearnOptions, kind: str, split: ForgetSplit) -> str:
    """A digest of what the options ask for: settings, what to forget, and the content of given weights."""
    from gradpivot.sweep import digest_of

    asked = {name: getattr(chosen, name) for name in ("map", "until", "keep")}
    given = {name: getattr(chosen, name) for name in ("weights", "classifier")}
    files = {name: _file_digest(path) for name, path in given.items() if path is not None and path.is_file()}
    return digest_of([_run_options(chosen, kind), chosen.method.to_dict(), asked, files, split.hash])


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _say_finished(chosen: options.UnlearnOptions | options.TrainOptions, metrics: dict[str, Any]) -> int:
    """Report that the folder holds this very run; returns the status of that run."""
    missed = metrics.get("missed")
    if is_first():
        if chosen.json:
            say_json((chosen.out / "metrics.json").read_text(encoding="utf-8"))
        else:
            say(f"{chosen.out} already holds this run{f': {missed}' if missed else ''}; --overwrite repeats it")
    return DIVERGED if metrics["diverged"] else UNMET if missed else 0


def _remove_checkpoints(chosen: options.UnlearnOptions, replicas: Replicas) -> None:
    """Remove what a finished run needed to resume."""
    from gradpivot.targets import forget_checkpoints

    if not replicas.is_first:
        return
    checkpoint = chosen.out / "checkpoint.pt"
    checkpoint.unlink(missing_ok=True)
    forget_checkpoints(checkpoint, replicas)
    for suffix in ("safetensors", "pt"):
        for path in chosen.out.glob(f"original-{'[0-9a-f]' * 16}.{suffix}"):
            path.unlink(missing_ok=True)


def _original_scores(prepared: Prepared) -> Scored:
    """Score the original; warns if it is at chance level."""
    import numpy as np

    from gradpivot.evaluate import Scores

    scores, running = prepared.original(), prepared.running
    guess = 1 / len(np.unique(prepared.split.test_labels))
    if isinstance(scores, Scores) and scores.ra < _CHANCE_FACTOR * guess and running.replicas.is_first:
        sys.stderr.write(
            f"gradpivot: the original classifies {100 * scores.ra:.1f} % of the retain set correctly, no better "
            f"than chance; are these its weights (--weights, --map) and its inputs (--normalise)?\n"
        )
    return scores


def _save_original(model: nn.Module, chosen: options.UnlearnOptions, folder: Path) -> None:
    from gradpivot.models import save_weights

    facts = {"problem": chosen.problem, "seed": chosen.seed}
    if chosen.model is not None:
        facts["model"] = chosen.model
    save_weights(model, folder / "original.safetensors", facts)


def _config(chosen: options.UnlearnOptions, kind: str, method: Any) -> dict[str, Any]:
    """The options that determine the results, in the format of ``--config``; without local paths."""
    given = {name: getattr(chosen, name) for name in ("map", "classes", "fraction", "until", "keep")}
    files = {name: getattr(chosen, name) for name in ("indices", "ids", "already_forgotten")}
    given |= {"map": list(chosen.map) or None, **{name: path and str(path) for name, path in files.items()}}
    asked = {name: value for name, value in given.items() if value is not None}
    return {**_run_options(chosen, kind), **asked, **method.to_dict()}


def _run_options(chosen: options.ProblemRun, device: str) -> dict[str, Any]:
    """The options that determine the results of any run."""
    names = ("problem", "model", "normalise", "seed", "threads", "device", "precision", "compile")
    values = {name: getattr(chosen, name) for name in names} | {"device": device}
    return {name: value for name, value in values.items() if value is not None}


def _saved_indices(folder: Path, scratch: Path, name: str = "forget_indices") -> Path:
    """Write a run's indices to a new file; the original file may be gone."""
    from gradpivot.runtime import parse_json

    try:
        indices = [int(index) for index in parse_json((folder / "split.json").read_text(encoding="utf-8"))[name]]
    except (ValueError, LookupError, TypeError) as error:
        raise GradPivotError(f"{folder}/split.json is damaged ({error}); repeat the run") from None
    path = scratch / f"{name}.txt"
    path.write_text("\n".join(map(str, indices)), encoding="utf-8")
    return path
