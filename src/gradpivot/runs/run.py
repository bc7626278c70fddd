"""Preparing, executing and scoring a run. Shared by the API, the command line, sweeps and experiments."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from torch import nn

from gradpivot.data import default_batch_size
from gradpivot.dial import SUITED
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate import Examination, Scored, Scorer, scorer_of
from gradpivot.loop import Loop, Outcome, Progress, recalibrate_over, same_statistics
from gradpivot.methods import CUP, Method
from gradpivot.models import class_name, structure, weights_digest
from gradpivot.runs.checks import check_run
from gradpivot.runs.earlier import AlreadyForgotten, measure_already_forgotten
from gradpivot.runs.keys import record_key
from gradpivot.runs.result import Result
from gradpivot.runtime import Replicas, environment, foreign_source
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.tasks import Task

__all__ = ["Options", "Prepared", "Result", "Running", "run_method", "split_for"]


def _describe_task(task: Task) -> Any:
    """A JSON-able description of a task, for run keys: its class and, for a dataclass, its fields.

    Values that are not plain, such as an adapter, are described by name, because their ``repr`` may differ between
    processes.
    """
    kind = class_name(task)
    if not is_dataclass(task):
        return kind
    values = {f.name: getattr(task, f.name) for f in fields(task)}
    plain = (str, int, float, bool, tuple, type(None))
    return kind, {
        name: repr(value) if isinstance(value, plain) else getattr(value, "__qualname__", type(value).__qualname__)
        for name, value in values.items()
    }


class Options(TypedDict, total=False):
    """Execution options; omitted or None means the default."""

    seed: int
    task: Task | None
    factory: Callable[[], nn.Module] | None
    workers: int
    retain_scored: int | None
    precision: str
    compile: bool
    replicas: Replicas | None
    scorer: Scorer | None


@dataclass(frozen=True, kw_only=True)
class Running:
    """Execution settings that apply to every method, shared by single runs and target searches.

    Attributes:
        seed: The same seed, machine and thread count give bit-identical results.
        task: Runs the model on a batch.
        factory: Returns a newly initialised model, for methods that retrain.
        workers: Data-loading processes. Does not affect the results.
        progress: Called with (steps done, total steps).
        checkpoint: Checkpoint file, or None.
        checkpoint_seconds: Interval between checkpoints.
        keep_checkpoint: Keep the checkpoint at the end, until the caller has saved the result.
        retain_scored: Measure RA on this many retain samples, the same for every model; on all if None.
        precision: Precision of forward and backward passes, one of :data:`gradpivot.loop.precision.PRECISIONS`.
        compile: Whether to use ``torch.compile``.
        replicas: The data-parallel processes. Default: the current process group, or this process alone.
        scorer: Scores the new model. Default: the task's scorer; see :func:`gradpivot.evaluate.scorer_of`.
        references: Models that never saw the forget set, for conditions on RMIA.
    """

    seed: int = 0
    task: Task = field(default_factory=Classification)
    factory: Callable[[], nn.Module] | None = None
    workers: int = 0
    progress: Progress | None = None
    checkpoint: Path | None = None
    checkpoint_seconds: float = 10.0
    keep_checkpoint: bool = False
    retain_scored: int | None = None
    precision: str = "float32"
    compile: bool = False
    replicas: Replicas = field(default_factory=Replicas.current)
    scorer: Scorer | None = None
    references: tuple[nn.Module, ...] = ()

    def __post_init__(self) -> None:
        if self.progress is not None and not callable(self.progress):
            raise GradPivotError(f"progress is {self.progress!r}; pass a function of (steps done, total steps)")

    @classmethod
    def of(cls, **options: Unpack[Options]) -> Running:
        """From execution options; None for ``task`` or ``replicas`` means the default."""
        given: dict[str, Any] = dict(options)
        for name in ("task", "replicas"):
            if given.get(name, ...) is None:
                del given[name]
        return cls(**given)

    def key(self, split: ForgetSplit, method: Method, model: nn.Module) -> str:
        """A hash that identifies a run: split, method, seed, original model, task, precision."""
        described = [
            split.hash,
            method.to_dict(),
            self.seed,
            weights_digest(model),
            structure(model),
            self.precision,
            self.compile,
            _describe_task(self.task),
            # A third-party method may change, and a subclass without a name inherits its parent's.
            foreign_source(type(method)),
            getattr(getattr(split.train, "collate_fn", None), "__qualname__", None),
        ]
        if isinstance(method, CUP) and method.restarts(split.kind, self.task):
            described.append(getattr(self.factory, "__qualname__", None))
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]

    def loop(self, checkpoint: Path | None) -> Loop:
        """Create the loop of one run, with this checkpoint file."""
        return Loop(
            seed=self.seed,
            workers=self.workers,
            factory=self.factory,
            progress=self.progress,
            checkpoint=checkpoint,
            checkpoint_seconds=self.checkpoint_seconds,
            precision=self.precision,
            compile=self.compile,
            replicas=self.replicas,
        )

    def settle(self, method: Method, split: ForgetSplit, original: nn.Module, model: nn.Module) -> None:
        """Recompute BatchNorm statistics after the weights changed, if the run recomputed them too."""
        if getattr(method, "batchnorm", None) in ("recalibrate", SUITED) and not same_statistics(original, model):
            size = getattr(method, "batch_size", None) or default_batch_size(len(split.forget_indices))
            recalibrate_over(
                model,
                split.train,
                split.retain_indices,
                self.task.retain_loss,
                batch_size=size,
                seed=self.seed,
                workers=self.workers,
                augment=getattr(method, "augment", None),
            )

    @property
    def looking(self) -> dict[str, Any]:
        """Keyword arguments for scoring functions."""
        return {"retain_scored": self.retain_scored, "workers": self.workers, "replicas": self.replicas}

    @property
    def scoring(self) -> Scorer:
        """The given scorer, or the default."""
        return self.scorer or scorer_of(self.task, **self.looking)

    def provenance(self, split: ForgetSplit, method: Method, original: nn.Module) -> dict[str, Any]:
        """Provenance of a run: split, seed, settings, original weights, versions, machine class, date."""
        return {
            "seed": self.seed,
            "split": split.facts(),
            "method": method.to_dict(),
            "looked_at_unseen": method.uses_validation(split.kind, self.task),
            "original_weights": weights_digest(original),
            "environment": environment(str(next(original.parameters()).device)) | {"processes": self.replicas.size},
            "precision": self.precision,
            "compile": self.compile,
        }


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A run that has passed the pre-flight checks.

    Attributes:
        model: The original model; not modified.
        split: The data to forget and to retain, with validation data if the method or a search uses them.
        method: The method and its settings.
        running: Execution settings.
    """

    model: nn.Module
    split: ForgetSplit
    method: Method
    running: Running

    @classmethod
    def of(
        cls,
        model: nn.Module,
        split: ForgetSplit,
        method: Method,
        running: Running | None = None,
        *,
        searches: bool = False,
    ) -> Prepared:
        """Run the pre-flight checks and prepare a run.

        If the method steers by held-out data and the split has no validation data, half of the test data becomes
        validation data and is left out of the final scores.

        Args:
            model: The original model.
            split: The data to forget and to retain.
            method: The method and its settings.
            running: Execution settings.
            searches: Whether the run searches for a target, which also needs validation data.

        Raises:
            GradPivotError: If an argument is invalid, or the new model could not be scored.
        """
        running = running or Running()
        check_run(model, split, method, running.task, seed=running.seed)
        running = replace(running, scorer=running.scoring)
        prepared = cls(model=model, split=split, method=method, running=running)
        prepared.scorer.check(split)
        divided = split.with_validation() if searches else split_for(method, split, running.task)
        if divided is not split:
            prepared.scorer.check(divided)
        return replace(prepared, split=divided)

    @property
    def scorer(self) -> Scorer:
        """Scores the models."""
        return self.running.scoring

    @property
    def key(self) -> str:
        """Identifies the run; see :meth:`Running.key`."""
        return self.running.key(self.split, self.method, self.model)

    @property
    def record_key(self) -> str:
        """Identifies the record of the run: the run and everything else its scores depend on."""
        device = str(next(self.model.parameters()).device)
        return record_key(self.key, device, self.running.retain_scored)

    def original(self) -> Scored:
        """The scores of the original model."""
        return self.scorer.scores(self.model, self.split)

    def outcome(self) -> Outcome:
        """Run the method without scoring the new model."""
        return self._run_loop(self.running.loop(self.running.checkpoint))

    def run(self) -> Result:
        """Run the method and score the new model."""
        running = self.running
        loop = running.loop(running.checkpoint)
        outcome = self._run_loop(loop)
        unlearned = time.perf_counter()
        outcome, examination = self._score(outcome, loop)
        if running.checkpoint is not None and running.replicas.is_first and not running.keep_checkpoint:
            running.checkpoint.unlink(missing_ok=True)
        return Result(
            model=outcome.model,
            scores=examination.scores,
            method=self.method,
            history=outcome.history,
            seconds=outcome.seconds,
            evaluation_seconds=time.perf_counter() - unlearned,
            diverged=outcome.diverged,
            provenance=running.provenance(self.split, self.method, self.model),
            note=outcome.note,
            pictures=examination.pictures,
            already_forgotten=None if outcome.diverged else self.already_forgotten(outcome.model),
        )

    def already_forgotten(self, model: nn.Module) -> AlreadyForgotten | None:
        """Compare a new model with the original on the records that earlier requests deleted."""
        excluded = self.method.restarts(self.split.kind, self.running.task)
        return measure_already_forgotten(self.model, model, self.split, self.running, excluded=excluded)

    def _run_loop(self, loop: Loop) -> Outcome:
        return loop.run(self.method, self.model, self.running.task, self.split, key=self.key)

    def _score(self, outcome: Outcome, loop: Loop) -> tuple[Outcome, Examination]:
        """Score the new model; if its outputs are not finite, undo the last step and mark the outcome as diverged."""
        if not outcome.diverged:
            try:
                return outcome, self.scorer.examine(outcome.model, self.split)
            except NonFiniteError:
                # No loss is computed after the last step, so scoring is the first to notice.
                loop.undo_last_step()
                last = len(outcome.history.get("step", ())) - 1
                reason = "the outputs are not finite after the last step"
                outcome = replace(outcome, diverged={"step": last, "reason": reason})
        return outcome, Examination(self.scorer.of_diverged(self.split))


def run_method(model: nn.Module, split: ForgetSplit, method: Method, running: Running | None = None) -> Result:
    """Prepare a run and run it; see :class:`Prepared`."""
    return Prepared.of(model, split, method, running).run()


def split_for(method: Method, split: ForgetSplit, task: Task) -> ForgetSplit:
    """The split, with validation data if the method uses them."""
    return split.with_validation() if method.uses_validation(split.kind, task) else split
