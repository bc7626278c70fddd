"""The commands that make one model: train, unlearn, rerun."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.cli import options
from gradpivot.cli.console import (
    bar,
    percentages,
    quiet,
    say,
    say_json,
    say_result,
    say_target,
    say_trained,
    wants_bars,
    watched_training,
)
from gradpivot.cli.dispatch import DIVERGED, UNMET, run
from gradpivot.cli.inputs import (
    check_model,
    device_named,
    prepare,
    problem_of,
    refuse_file,
    set_threads,
    suited,
)
from gradpivot.cli.interrupt import terminating
from gradpivot.cli.torchrun import device_of_process, joined
from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.evaluate import Scores
    from gradpivot.runs import Running
    from gradpivot.runtime import Replicas

__all__: list[str] = []

_NO_BETTER = 1.2
"""Times the accuracy of guessing: below it a model is taken for one that was loaded wrongly."""


@run.register
def _(chosen: options.TrainOptions) -> int:
    from gradpivot.runs import everything, refuse_used, train_model, write_training

    refuse_file(chosen.out)
    refuse_used(chosen.out, chosen.overwrite)
    set_threads(chosen.threads)
    device, problem = device_named(chosen.device), problem_of(chosen)
    data = everything(problem)
    if chosen.model is not None:
        check_model(problem, data, chosen.model)
    checkpoint = chosen.out / "checkpoint.pt"
    watched = watched_training(f"Training {problem.name}", chosen.training.epochs, chosen.json)
    with terminating(), watched as (progress, tell):
        trained = train_model(
            problem,
            chosen.training,
            data=data,
            seed=chosen.seed,
            device=device,
            precision=chosen.precision,
            compile=chosen.compile,
            workers=chosen.workers,
            evaluate_every=chosen.evaluate_every,
            progress=progress,
            tell=tell,
            checkpoint=checkpoint,
            checkpoint_seconds=chosen.checkpoint_every,
        )
    settings = chosen.training.to_dict()
    write_training(
        chosen.out,
        {**_computing(chosen, device), "evaluate_every": chosen.evaluate_every, **settings},
        trained,
    )
    checkpoint.unlink(missing_ok=True)
    if chosen.json:
        say_json((chosen.out / "metrics.json").read_text(encoding="utf-8"))
    else:
        named = {name: getattr(chosen, name) for name in ("problem", "model", "normalise")}
        say_trained(
            trained, " ".join(f"--{name} {value}" for name, value in named.items() if value), chosen.out
        )
    return DIVERGED if trained.diverged else 0


@run.register
def _(chosen: options.UnlearnOptions) -> int:
    kind = device_named(chosen.device)
    with joined(kind) as replicas, nullcontext() if replicas.is_first else quiet():
        return _unlearn(chosen, kind, replicas)


@run.register
def _(chosen: options.RerunOptions) -> int:
    from gradpivot.cli.parser import parse
    from gradpivot.runs import read_config, read_scores

    config, before = read_config(chosen.folder), read_scores(chosen.folder)
    # The original was kept under the model's own names: there is nothing left to rename.
    config.pop("map", None)
    original = chosen.folder / "original.safetensors"
    with tempfile.TemporaryDirectory() as scratch:
        out = chosen.out or Path(scratch) / "run"
        file = Path(scratch) / "config.yaml"
        file.write_text(json.dumps(config), encoding="utf-8")
        words = ["unlearn", "--config", str(file), "--out", str(out), "--weights", str(original)]
        if "indices" in config:
            words += ["--indices", str(_saved_indices(chosen.folder, Path(scratch)))]
        with quiet():
            run(parse(words))
        after = read_scores(out)
    different = [name for name in before if before[name] != after[name]]
    if different:
        told = ", ".join(f"{name} {before[name]} then, {after[name]} now" for name in different)
        raise GradPivotError(
            f"the second run scored differently: {told}. Compare environment.json: versions, threads or the "
            f"machine may have changed"
        )
    if after["n_forget"] == 0:
        say("The run diverged again, as it did before; there are no scores to compare")
        return DIVERGED
    say(f"The same scores, to the last digit: {percentages(after)}")
    return 0


def _unlearn(chosen: options.UnlearnOptions, kind: str, replicas: Replicas) -> int:
    """One run, or one search; of several processes all do it, and the first one writes and speaks."""
    from gradpivot.cli.judging import examination_of
    from gradpivot.runs import check_run, refuse_used, run_method, split_for, write_run
    from gradpivot.targets import (
        SampleLooker,
        Targeted,
        Targets,
        check_walkable,
        forget_checkpoints,
        unlearn_until,
    )
    from gradpivot.tasks import predicts

    # What was typed wrong is told before anything is trained.
    aimed = chosen.until is not None or chosen.keep is not None
    targets = Targets.read(chosen.until, chosen.keep) if aimed else None
    if targets is not None:
        check_walkable(chosen.method)
    refuse_file(chosen.out)
    refuse_used(chosen.out, chosen.overwrite)
    if targets is not None and not predicts(problem_of(chosen).task):
        SampleLooker.check(targets.metrics_until | targets.metrics_keep)
    problem, split, model = prepare(chosen, device_of_process(kind), replicas)
    method = suited(chosen.method, problem)
    checkpoint = chosen.out / "checkpoint.pt"
    # torchrun ends the others by SIGTERM when one is lost: nobody has interrupted them, and the one that noticed tells.
    ending = terminating() if replicas.size == 1 else nullcontext()
    with ending, bar(method.title, wants_bars(chosen.json)) as report:
        running = dataclasses.replace(
            problem.running,
            seed=chosen.seed,
            workers=chosen.workers,
            progress=report,
            checkpoint=checkpoint,
            keep_checkpoint=True,
            precision=chosen.precision,
            compile=chosen.compile,
            replicas=replicas,
        )
        scored = split.with_validation() if targets else split_for(method, split, running.task)
        check_run(model, scored, method, running.task, seed=running.seed, retain_scored=running.retain_scored)
        original = _original_scores(model, scored, running)
        if targets is None:
            result = run_method(model, split, method, running)
        else:
            judged = examination_of(problem, split, chosen.out, device_of_process(kind), quiet=chosen.json)
            result = unlearn_until(model, split, method, targets, running, examination=judged)
    unmet = isinstance(result, Targeted) and not result.met
    status = DIVERGED if result.diverged else UNMET if unmet else 0
    if not replicas.is_first:
        return status
    _keep_original(model, chosen)
    write_run(chosen.out, _config(chosen, kind, method), scored, result, original)
    checkpoint.unlink(missing_ok=True)
    if targets is not None:
        forget_checkpoints(checkpoint, replicas)
    if chosen.json:
        say_json((chosen.out / "metrics.json").read_text(encoding="utf-8"))
    else:
        say_result(result, original, chosen.out, f"--problem {chosen.problem} --classes {chosen.classes}")
    if isinstance(result, Targeted):
        say_target(result, beside_json=chosen.json)
    return status


def _original_scores(model: nn.Module, split: ForgetSplit, running: Running) -> Scores | None:
    """The scores before the run; None for a generator. One that knows nothing of its task is told at once."""
    import numpy as np

    from gradpivot.evaluate import evaluate
    from gradpivot.tasks import predicts

    if not predicts(running.task):
        return None
    scores = evaluate(model, split, running.task, **running.looking)
    if scores.ra < _NO_BETTER / len(np.unique(split.test_labels)) and running.replicas.is_first:
        sys.stderr.write(
            f"gradpivot: the original is right for {100 * scores.ra:.1f} % of what is to be kept, which is no better "
            f"than a guess; are these its weights (--weights, --map) and its inputs (--normalise)?\n"
        )
    return scores


def _keep_original(model: nn.Module, chosen: options.UnlearnOptions) -> None:
    from gradpivot.models import save_weights

    facts = {"problem": chosen.problem, "seed": chosen.seed}
    if chosen.model is not None:
        facts["model"] = chosen.model
    save_weights(model, chosen.out / "original.safetensors", facts)


def _config(chosen: options.UnlearnOptions, kind: str, method: Any) -> dict[str, Any]:
    """The options that decide the numbers, as 'unlearn --config' reads them; no path of this machine."""
    settings: dict[str, Any] = {
        **_computing(chosen, kind),
        "map": list(chosen.map) or None,
        "classes": chosen.classes,
        "fraction": chosen.fraction,
        "indices": str(chosen.indices) if chosen.indices else None,
        "until": chosen.until,
        "keep": chosen.keep,
        **method.to_dict(),
    }
    optional = ("map", "classes", "fraction", "indices", "until", "keep")
    return {name: value for name, value in settings.items() if value is not None or name not in optional}


def _computing(chosen: options.ProblemRun, device: str) -> dict[str, Any]:
    """The options of every run that decide its numbers."""
    model = {"model": chosen.model, "normalise": chosen.normalise}
    return {
        "problem": chosen.problem,
        **{name: value for name, value in model.items() if value is not None},
        "seed": chosen.seed,
        "threads": chosen.threads,
        "device": device,
        "precision": chosen.precision,
        "compile": chosen.compile,
    }


def _saved_indices(folder: Path, scratch: Path) -> Path:
    """The forgotten indices of a run as a file; the one it was started with may be gone."""
    saved = json.loads((folder / "split.json").read_text(encoding="utf-8"))
    path = scratch / "indices.txt"
    path.write_text("\n".join(map(str, saved["forget_indices"])), encoding="utf-8")
    return path
