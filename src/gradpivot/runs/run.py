"""One run: a method on a model, scored and with its provenance. What :mod:`gradpivot.api.verbs` and sweeps share."""

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
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate import Scored, Scores, evaluate
from gradpivot.loop import Loop, Outcome, Progress, recalibrate_over
from gradpivot.methods import Method
from gradpivot.models import class_name, structure, weights_digest
from gradpivot.results import Point
from gradpivot.runs.checks import check_run
from gradpivot.runtime import Replicas, environment
from gradpivot.tasks import Classification, predicts

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.tasks import Task

__all__ = ["Options", "Result", "Running", "run_method", "split_for"]


MISSED = 0.03
"""Landing is exact to a point; a degree missed by more than this was not reached."""
MISSED_WAY = 0.1
"""The same for a degree of doubt, as a share of the way to it."""
FEW_STEPS = 40


@dataclass(frozen=True, kw_only=True)
class Result:
    """What unlearning gave.

    Attributes:
        model: The new model; the last finite weights if the run diverged.
        scores: RA, UA, TA, MIA as fractions; zeros if the run diverged. None for a generator, which predicts no label
            and is judged by what it makes.
        method: What was run.
        history: Telemetry, one list per column, one entry per step.
        seconds: Wall-clock of unlearning, preparation included, evaluation not.
        evaluation_seconds: Wall-clock of scoring what came out.
        diverged: None, or the step and the reason.
        note: What the method has to say of the run, if there is something to be told.
        provenance: Split, seed, settings, versions, machine class, date.
    """

    model: nn.Module
    scores: Scores | None
    method: Method
    history: dict[str, list[Any]]
    seconds: float
    evaluation_seconds: float
    diverged: dict[str, Any] | None
    provenance: dict[str, Any]
    note: str | None = None

    @property
    def asked_ua(self) -> float | None:
        """The UA that was asked for by γ as a degree; None for what asks for none."""
        asked = self.history.get("asked")
        if not asked or self.scores is None or self._looked_at_unseen:
            return None
        return float(asked[-1])

    @property
    def _looked_at_unseen(self) -> bool:
        return bool(self.provenance.get("looked_at_unseen"))

    @property
    def is_original(self) -> bool:
        """Whether the model is the one that was given, bit for bit."""
        return bool(weights_digest(self.model) == self.provenance["original_weights"])

    @property
    def missed(self) -> str | None:
        """One line if much less was forgotten than was asked for, with what may help; None if it was not."""
        gamma = getattr(self.method, "gamma", 0.0)
        if self.scores is None or self.diverged or gamma == 0:
            return None
        unchanged = self.is_original
        told = self.note or (
            self._missed_doubt(unchanged) if self._looked_at_unseen else self._missed_ua(unchanged)
        )
        return f"the model is the original, unchanged: {told}" if told and unchanged else told

    def _missed_ua(self, unchanged: bool) -> str | None:
        asked = self.asked_ua
        assert self.scores is not None
        if asked is None or (self.scores.ua >= asked - MISSED and not unchanged):
            return None
        reached = f"asked for UA {100 * asked:.1f} %, reached {100 * self.scores.ua:.1f} %"
        return f"{reached}: {self._help(unchanged)}"

    def _missed_doubt(self, unchanged: bool) -> str | None:
        if not self.history.get("asked"):
            return None
        start, most, asked, reached = (
            self.history[name][-1] for name in ("start", "most", "asked", "reached")
        )
        near = max(MISSED_WAY * (asked - start), MISSED * (most - start))
        if reached >= asked - near and not unchanged:
            return None
        doubt = f"asked for a mean doubt of {100 * asked:.2f} %, reached {100 * reached:.2f} %"
        return f"{doubt}: {self._help(unchanged)}"

    def _help(self, unchanged: bool) -> str:
        steps, kind = len(self.history.get("step", ())), self.provenance["split"]["kind"]
        if steps < FEW_STEPS:
            return f"{steps} steps are few, allow it more epochs"
        told = "more would have cost too much of what is kept"
        if kind == "class" and not unchanged:
            return f"{told}; a longer run may find a way"
        if kind != "class" and not self._looked_at_unseen:
            told += ". A retrained model recognises most single records, too"
        # γ = 1 is allowed all of it without being told.
        spent = getattr(self.method, "gamma", 1.0) == 1 or getattr(self.method, "budget", None) == 1
        cost = "" if spent else "allow all that a run may cost (budget 1), "
        return (
            f"{told}. A longer run may find a way; or {cost}ask for a target (until), or take a point of a quick trace "
            f"(docs/quickstart.md)"
        )

    def point(self, judged: Scored | None = None) -> Point:
        """The run as a point of a frontier.

        Args:
            judged: What a generator scored in an examination.

        Raises:
            GradPivotError: for a generator's without that.
        """
        scores = judged or self.scores
        if scores is None:
            raise GradPivotError(
                "a generator has no RA, UA, TA and MIA, so it is no point of their frontier; judge its samples"
            )
        settings = self.method.to_dict()
        knob = settings.get(self.method.walked) if self.method.walked else None
        return Point(
            label=self.method.label,
            settings=settings,
            scores=scores,
            knob=knob,
            seconds=self.seconds,
            diverged=self.diverged,
            history=self.history,
        )


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
        name: repr(value)
        if isinstance(value, plain)
        else getattr(value, "__qualname__", type(value).__qualname__)
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


@dataclass(frozen=True, kw_only=True)
class Running:
    """How a run is computed, whatever the method: what a plain run and a search for a target share.

    Attributes:
        seed: Same seed, machine and thread count: the same numbers to the last digit.
        task: How to run the model on a batch.
        factory: Makes a newly initialised model, for methods that start over.
        workers: Data-loading processes; never changes a number.
        progress: Called with (steps done, steps in all).
        checkpoint: Where to keep a resumable state, or None.
        checkpoint_seconds: How often to write it.
        keep_checkpoint: Leave the file for a caller who has yet to write the result down.
        retain_scored: Take RA on this many retain samples, the same random ones for every model; on all if None.
        precision: One of :data:`gradpivot.loop.precision.PRECISIONS`, for the losses' passes.
        compile: Let ``torch.compile`` make their code.
        replicas: The processes that do it together: those of the process group if there is one.
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
        """Take BatchNorm's statistics anew for weights moved by hand, where the policy does so after a run."""
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

    def provenance(self, split: ForgetSplit, method: Method, original: nn.Module) -> dict[str, Any]:
        """What a run came from: split, seed, settings, original weights, versions, machine class, date."""
        return {
            "seed": self.seed,
            "split": split.facts(),
            "method": method.to_dict(),
            "looked_at_unseen": method.looks_at_unseen(split.kind, self.task),
            "original_weights": weights_digest(original),
            "environment": environment(str(next(original.parameters()).device))
            | {"processes": self.replicas.size},
            "precision": self.precision,
            "compile": self.compile,
        }


def run_method(
    model: nn.Module, split: ForgetSplit, method: Method, running: Running | None = None
) -> Result:
    """Run one method and score what comes out.

    A method that steers by never-seen data gets validation data, if the split has none: half of the test data, which
    are then not among those of the final scores.

    Args:
        model: The trained model; it is not changed.
        split: What to forget.
        method: How.
        running: How it is computed; as usual if not given.
    """
    running = running or Running()
    check_run(model, split, method, running.task, seed=running.seed, retain_scored=running.retain_scored)
    split = split_for(method, split, running.task)
    loop = running.loop(running.checkpoint)
    outcome = loop.run(method, model, running.task, split, key=running.key(split, method, model))
    unlearned = time.perf_counter()
    outcome, scores = _scored(outcome, loop, split, running)
    if running.checkpoint is not None and running.replicas.is_first and not running.keep_checkpoint:
        running.checkpoint.unlink(missing_ok=True)
    return Result(
        model=outcome.model,
        scores=scores,
        method=method,
        history=outcome.history,
        seconds=outcome.seconds,
        evaluation_seconds=time.perf_counter() - unlearned,
        diverged=outcome.diverged,
        provenance=running.provenance(split, method, model),
        note=outcome.note,
    )


def split_for(method: Method, split: ForgetSplit, task: Task) -> ForgetSplit:
    """The split, with validation data for a method that steers by them."""
    return split.with_validation() if method.looks_at_unseen(split.kind, task) else split


def _scored(
    outcome: Outcome, loop: Loop, split: ForgetSplit, running: Running
) -> tuple[Outcome, Scores | None]:
    """What came out and its scores; a last step that went too far is taken back."""
    if not predicts(running.task):
        return outcome, None
    if outcome.diverged:
        return outcome, Scores.of_diverged()
    try:
        return outcome, evaluate(outcome.model, split, running.task, **running.looking)
    except NonFiniteError:
        # No loss was taken after the last step: the scores are the first to see.
        loop.undo_last_step()
        last = len(outcome.history.get("step", ())) - 1
        told = {"step": last, "reason": "the outputs are not finite after the last step"}
        return replace(outcome, diverged=told), Scores.of_diverged()
