"""One run: prepared once, then run and scored. What the API, the command line, sweeps and experiments share."""

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
from gradpivot.errors import NonFiniteError
from gradpivot.evaluate import Examination, Scored, Scorer, scorer_of
from gradpivot.loop import Loop, Outcome, Progress, recalibrate_over
from gradpivot.methods import Method
from gradpivot.models import class_name, structure, weights_digest
from gradpivot.runs.checks import check_run
from gradpivot.runs.keys import record_key
from gradpivot.runs.result import Result
from gradpivot.runtime import Replicas, environment, foreign_source
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.tasks import Task

__all__ = ["Options", "Prepared", "Result", "Running", "run_method", "split_for"]


def _told(task: Task) -> Any:
    """What of a task decides weights, JSON-able: its class and the plain values that a dataclass holds.

    Of anything else, such as an adapter, its name: what is printed of it may be another one in each process.
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
    """What people may say of how runs are computed; what they leave out, or say None for, is as usual."""

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
        progress: Called with (steps done, steps in all).
        checkpoint: Where to keep a resumable state, or None.
        checkpoint_seconds: How often to write it.
        keep_checkpoint: Leave the file for a caller who has yet to write the result down.
        retain_scored: Take RA on this many retain samples, the same random ones for every model; on all if None.
        precision: One of :data:`gradpivot.loop.precision.PRECISIONS`, for the losses' passes.
        compile: Let ``torch.compile`` make their code.
        replicas: The processes that do it together: those of the process group if there is one.
        scorer: How what comes out is scored; the task's, or the usual one of its kind, if None.
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

    @classmethod
    def of(cls, **options: Unpack[Options]) -> Running:
        """From what people give: a task or replicas of None are the usual ones."""
        given: dict[str, Any] = dict(options)
        for name in ("task", "replicas"):
            if given.get(name, ...) is None:
                del given[name]
        return cls(**given)

    def key(self, split: ForgetSplit, method: Method, model: nn.Module) -> str:
        """What identifies a run: split, full configuration, seed, the model it starts from, how it is computed."""
        described = [
            split.hash,
            method.to_dict(),
            self.seed,
            weights_digest(model),
            structure(model),
            self.precision,
            self.compile,
            _told(self.task),
            # Somebody else's method may be edited, and a subclass without a name has its parent's.
            foreign_source(type(method)),
            getattr(getattr(split.train, "collate_fn", None), "__qualname__", None),
        ]
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]

    def loop(self, checkpoint: Path | None) -> Loop:
        """A Loop for one run, which keeps its state in ``checkpoint``."""
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

    def settle(self, split: ForgetSplit, method: Method, model: nn.Module) -> None:
        """Recompute BatchNorm statistics after a change of weights, if the method recalibrates them after a run."""
        if getattr(method, "batchnorm", None) == "recalibrate":
            size = getattr(method, "batch_size", None) or default_batch_size(len(split.forget_indices))
            recalibrate_over(
                model,
                split.train,
                split.retain_indices,
                self.task.retain_loss,
                batch_size=size,
                seed=self.seed,
                workers=self.workers,
            )

    @property
    def looking(self) -> dict[str, Any]:
        """What scoring has to know."""
        return {"retain_scored": self.retain_scored, "workers": self.workers, "replicas": self.replicas}

    @property
    def scoring(self) -> Scorer:
        """The scorer."""
        return self.scorer or scorer_of(self.task, **self.looking)

    def provenance(self, split: ForgetSplit, method: Method, original: nn.Module) -> dict[str, Any]:
        """What a run came from: split, seed, settings, original weights, versions, machine class, date."""
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
    """A run that can start: everything is resolved and checked, once.

    Attributes:
        model: The trained model; it is not changed.
        split: What to forget, with validation data where the method or a search steers by them.
        method: How.
        running: How it is computed and scored.
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
        """Check everything that a run needs, before anything is computed.

        A method that steers by held-out data gets validation data, if the split has none: half of the test data, which
        are then not among those of the final scores. So does a run that ``searches`` for a target.

        Raises:
            GradPivotError: if one of these is not what it should be, or what comes out could not be scored.
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
        """How models are scored."""
        return self.running.scoring

    @property
    def key(self) -> str:
        """What identifies the run; see :meth:`Running.key`."""
        return self.running.key(self.split, self.method, self.model)

    @property
    def record_key(self) -> str:
        """What identifies its record: the run, and what else its scores depend on."""
        device = str(next(self.model.parameters()).device)
        return record_key(self.key, device, self.running.retain_scored)

    def original(self) -> Scored:
        """The scores of the model before the run."""
        return self.scorer.scores(self.model, self.split)

    def outcome(self) -> Outcome:
        """Run the method, and do not score what comes out."""
        return self._ran(self.running.loop(self.running.checkpoint))

    def run(self) -> Result:
        """Run the method and score what comes out."""
        running = self.running
        loop = running.loop(running.checkpoint)
        outcome = self._ran(loop)
        unlearned = time.perf_counter()
        outcome, found = self._scored(outcome, loop)
        if running.checkpoint is not None and running.replicas.is_first and not running.keep_checkpoint:
            running.checkpoint.unlink(missing_ok=True)
        return Result(
            model=outcome.model,
            scores=found.scores,
            method=self.method,
            history=outcome.history,
            seconds=outcome.seconds,
            evaluation_seconds=time.perf_counter() - unlearned,
            diverged=outcome.diverged,
            provenance=running.provenance(self.split, self.method, self.model),
            note=outcome.note,
            pictures=found.pictures,
        )

    def _ran(self, loop: Loop) -> Outcome:
        return loop.run(self.method, self.model, self.running.task, self.split, key=self.key)

    def _scored(self, outcome: Outcome, loop: Loop) -> tuple[Outcome, Examination]:
        """What came out and its scores; a last step that went too far is taken back."""
        if not outcome.diverged:
            try:
                return outcome, self.scorer.examine(outcome.model, self.split)
            except NonFiniteError:
                # No loss was taken after the last step: the scores are the first to see.
                loop.undo_last_step()
                last = len(outcome.history.get("step", ())) - 1
                told = {"step": last, "reason": "the outputs are not finite after the last step"}
                outcome = replace(outcome, diverged=told)
        return outcome, Examination(self.scorer.of_diverged(self.split))


def run_method(model: nn.Module, split: ForgetSplit, method: Method, running: Running | None = None) -> Result:
    """Prepare a run and run it; see :class:`Prepared`."""
    return Prepared.of(model, split, method, running).run()


def split_for(method: Method, split: ForgetSplit, task: Task) -> ForgetSplit:
    """The split, with validation data for a method that steers by them."""
    return split.with_validation() if method.uses_validation(split.kind, task) else split
