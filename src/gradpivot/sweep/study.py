"""A study: several methods over their settings on one problem, each run kept as soon as it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.evaluate import evaluate
from gradpivot.methods import Method
from gradpivot.results import Comparison, Frontier, Point
from gradpivot.runs import original_model, record_key, run_method, split_for
from gradpivot.runtime import environment
from gradpivot.sweep.store.records import Records

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.experiments import Problem

__all__ = ["run_study"]

Report = Callable[[int, int, str], None]
"""Called with (runs done, runs in all, what runs now)."""


def run_study(
    problem: Problem,
    split: ForgetSplit,
    series: Mapping[str, Sequence[Method]],
    *,
    seed: int,
    folder: Path,
    title: str,
    report: Report | None = None,
    provenance: Mapping[str, Any] | None = None,
    model: nn.Module | None = None,
    reference: bool = True,
    workers: int = 0,
    precision: str = "float32",
    compile: bool = False,
) -> Comparison:
    """Run every method of every series once, beside the original and a retrained reference.

    What is already recorded in ``folder`` is not run again, so an interrupted study continues where it stopped.

    Args:
        problem: Data, model and training.
        split: What to forget.
        series: Methods by the name of the frontier they make.
        seed: Of the original, the reference and every run.
        folder: Where runs are recorded and the original is kept.
        title: For the report.
        report: Called before every run.
        provenance: More to record.
        model: The original, if it is not to be trained here.
        reference: Whether to train a retrained reference.
        workers: Data-loading processes; never changes a number.
        precision: Number format of the losses' passes, for the reference too.
        compile: Whether ``torch.compile`` makes their code.
    """
    # If one of them steers by never-seen data, all are scored on the others.
    for method in (method for methods in series.values() for method in methods):
        split = split_for(method, split, problem.task)
    records = Records(folder / "runs")
    total = 1 + reference + sum(len(methods) for methods in series.values())
    done = 0

    def tell(what: str) -> None:
        if report:
            report(done, total, what)

    tell("the original model")
    if model is None:
        model = original_model(problem, split, seed, folder / f"original-{seed}.safetensors")
    computed = {"precision": precision, "compile": compile}
    one = partial(_recorded, records, problem, model, split, seed=seed, workers=workers, computed=computed)
    scores = evaluate(
        model,
        split,
        problem.task,
        workers=workers,
        retain_scored=problem.retain_scored,
    )
    original = Point(label="Original", settings={}, scores=scores)
    done += 1
    retrained = None
    if reference:
        tell("retraining without the forgotten data")
        retrained = replace(one(problem.training), label="Retrain")
        done += 1
    frontiers = []
    for name, methods in series.items():
        points = []
        for method in methods:
            tell(f"{name}: {method.label}")
            points.append(one(method))
            done += 1
        frontiers.append(
            Frontier(
                name=name,
                method=methods[0].name,
                knob=methods[0].walked,
                points=points,
                reference=retrained.scores if retrained else None,
                kind=split.kind,
            )
        )
    tell("done")
    return Comparison(
        title=title,
        problem={"name": problem.name, **split.facts()},
        original=original,
        retrained=retrained,
        frontiers=frontiers,
        provenance={
            "seed": seed,
            "training": problem.training.to_dict(),
            "environment": environment(str(next(model.parameters()).device)),
            **computed,
            "damaged_records_redone": [path.name for path in records.damaged],
            **(provenance or {}),
        },
    )


def _recorded(
    records: Records,
    problem: Problem,
    model: nn.Module,
    split: ForgetSplit,
    method: Method,
    *,
    seed: int,
    workers: int,
    computed: Mapping[str, Any],
) -> Point:
    """The run's point, from its record or by running it."""
    device = str(next(model.parameters()).device)
    running = replace(problem.running, seed=seed, workers=workers, **computed)
    key = record_key(running.key(split, method, model), device, problem.retain_scored)
    known = records.get(key)
    if known is not None:
        return Point.from_dict(known)
    result = run_method(model, split, method, running)
    point = result.point()
    records.put(key, point.to_dict())
    return point
