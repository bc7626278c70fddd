"""A study: several methods over their settings on one problem, with each run saved as it finishes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.methods import Method
from gradpivot.models import load_weights, save_weights
from gradpivot.results import Comparison, Frontier, Point
from gradpivot.runs import Prepared, Result, original_model, split_for
from gradpivot.runtime import checked, describe_error, environment
from gradpivot.sweep.store.records import Records

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.experiments import Problem

__all__ = ["Runs", "run_study"]

Report = Callable[[int, int, str], None]
"""Called with (finished runs, total runs, current run)."""


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
    keep_models: bool = False,
) -> Comparison:
    """Run every method of every series, the original and a retrained reference.

    Runs recorded in ``folder`` are reused, so an interrupted study continues where it stopped.

    Args:
        problem: Data, model and training.
        split: What to forget.
        series: Methods by the name of their frontier.
        seed: Seed of the original, the reference and every run.
        folder: Folder for the records and the original.
        title: Title of the report.
        report: Called before every run.
        provenance: Additional provenance to record.
        model: The original; trained here if None.
        reference: Whether to train a retrained reference.
        workers: Data-loading processes; does not affect results.
        precision: Number format of forward and backward passes, including the reference's.
        compile: Whether to compile them with ``torch.compile``.
        keep_models: Whether to save the weights of every run, for :meth:`Runs.result`.
    """
    # If one method steers by held-out data, all are scored on the remaining test data.
    for method in (method for methods in series.values() for method in methods):
        split = split_for(method, split, problem.task)
    runs = Runs(folder)
    total = 1 + reference + sum(len(methods) for methods in series.values())
    done = 0

    def announce(what: str) -> None:
        if report:
            report(done, total, what)

    announce("the original model")
    if model is None:
        model = original_model(problem, split, seed, folder / f"original-{seed}.safetensors")
    computed: dict[str, Any] = {"precision": precision, "compile": compile}

    def ready(method: Method) -> Prepared:
        return problem.prepared(model, split, method, seed=seed, workers=workers, **computed)

    start = ready(problem.training)
    original = Point(label="Original", settings={}, scores=start.original())
    done += 1
    retrained = None
    if reference:
        announce("retraining without the forget set")
        retrained = replace(runs.point(start), label="Retrain")
        done += 1
    frontiers = []
    for name, methods in series.items():
        points = []
        for method in methods:
            announce(f"{name}: {method.label}")
            points.append(runs.point(ready(method), keep_model=keep_models))
            done += 1
        frontiers.append(
            Frontier(
                name=name,
                method=methods[0].name,
                knob=methods[0].active_knob,
                points=points,
                reference=retrained.scores if retrained else None,
                kind=split.kind,
            )
        )
    announce("done")
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
            "damaged_records_redone": [path.name for path in runs.damaged],
            **(provenance or {}),
        },
    )


class Runs:
    """The runs of a study on disk; finished ones are read back.

    Args:
        folder: Folder of the study.
    """

    def __init__(self, folder: Path) -> None:
        self._records, self._models = Records(folder / "runs"), folder / "models"
        self._folder = folder

    @property
    def damaged(self) -> list[Path]:
        """Records that could not be read, whose runs were repeated."""
        return list(self._records.damaged)

    def point(self, prepared: Prepared, *, keep_model: bool = False) -> Point:
        """The run's point, from its record or by running it; ``keep_model`` saves the weights for :meth:`result`."""
        known = self._read(prepared.record_key)
        if known is None:
            return self._run(prepared, keep_model).point()
        self._checkpoint(prepared).unlink(missing_ok=True)
        return known[0]

    def result(self, prepared: Prepared) -> Result:
        """The full result with its model, from record and weights, or by running it if these are missing."""
        known, weights = self._read(prepared.record_key), self._weights(prepared)
        if known is None or not weights.exists():
            return self._run(prepared, keep_model=True)
        point, note = known
        model = copy.deepcopy(prepared.model)
        load_weights(model, weights)
        return Result(
            model=model,
            scores=point.scores,
            method=prepared.method,
            history={name: list(column) for name, column in point.history.items()},
            seconds=point.seconds,
            evaluation_seconds=0.0,
            diverged=None if point.diverged is None else dict(point.diverged),
            provenance=prepared.running.provenance(prepared.split, prepared.method, prepared.model),
            note=note,
            already_forgotten=None if point.diverged else prepared.already_forgotten(model),
        )

    def _read(self, key: str) -> tuple[Point, str | None] | None:
        """The recorded point and the run's note; None if there is no sound record."""
        if (content := self._records.get(key)) is None:
            return None
        try:
            return Point.from_dict(content), checked({"note": None, **content}, note=str | None)["note"]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            self._records.damaged[self._records.path(key)] = describe_error(error)
            return None

    def _run(self, prepared: Prepared, keep_model: bool) -> Result:
        checkpoint = self._checkpoint(prepared)
        running = replace(prepared.running, checkpoint=checkpoint, keep_checkpoint=True)
        result = replace(prepared, running=running).run()
        if keep_model:
            save_weights(result.model, self._weights(prepared), {"method": result.method.label})
        self._records.put(prepared.record_key, {**result.point().to_dict(), "note": result.note})
        checkpoint.unlink(missing_ok=True)
        return result

    def _checkpoint(self, prepared: Prepared) -> Path:
        return self._folder / f"{prepared.record_key}.checkpoint.pt"

    def _weights(self, prepared: Prepared) -> Path:
        return self._models / f"{prepared.record_key}.safetensors"
