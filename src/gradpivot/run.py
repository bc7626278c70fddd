"""One run: a method on a model, scored and with its provenance. What :mod:`gradpivot.api` and sweeps share."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate.evaluation import evaluate
from gradpivot.evaluate.scores import Scored, Scores
from gradpivot.frontier.frontier import Point
from gradpivot.loop import Loop, Outcome, Progress
from gradpivot.methods.method import Method
from gradpivot.parallel import Replicas
from gradpivot.provenance import environment
from gradpivot.sharding import is_sharded
from gradpivot.tasks.classification import Classification
from gradpivot.tasks.task import predicts
from gradpivot.weights import weights_digest

if TYPE_CHECKING:
    from gradpivot.data.split import ForgetSplit
    from gradpivot.tasks.task import Task

__all__ = ["Result", "check_run", "provenance_of", "run_key", "run_method"]


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
        knob = settings.get(self.method.knob) if self.method.knob else None
        return Point(
            label=self.method.label,
            settings=settings,
            scores=scores,
            knob=knob,
            seconds=self.seconds,
            diverged=self.diverged,
            history=self.history,
        )


def run_key(
    split: ForgetSplit,
    method: Method,
    seed: int,
    model: nn.Module | None = None,
    *,
    precision: str = "float32",
    compile: bool = False,
) -> str:
    """What identifies a run: split, full configuration, seed, the weights it starts from, how it is computed."""
    weights = weights_digest(model) if model is not None else None
    described = [split.hash, method.to_dict(), seed, weights, precision, compile]
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def run_method(
    model: nn.Module,
    split: ForgetSplit,
    method: Method,
    *,
    seed: int = 0,
    task: Task | None = None,
    factory: Callable[[], nn.Module] | None = None,
    workers: int = 0,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 10.0,
    keep_checkpoint: bool = False,
    retain_scored: int | None = None,
    precision: str = "float32",
    compile: bool = False,
    replicas: Replicas | None = None,
) -> Result:
    """Run one method and score what comes out; see :func:`gradpivot.unlearn` for the arguments.

    ``keep_checkpoint`` leaves the file for a caller who has yet to write the result down.
    """
    check_run(model, method, seed)
    task = task or Classification()
    key = run_key(split, method, seed, model, precision=precision, compile=compile)
    replicas = replicas or Replicas.current()
    path = Path(checkpoint) if checkpoint is not None else None
    loop = Loop(
        seed=seed,
        workers=workers,
        factory=factory,
        progress=progress,
        checkpoint=path,
        checkpoint_seconds=checkpoint_seconds,
        precision=precision,
        compile=compile,
        replicas=replicas,
    )
    outcome = loop.run(method, model, task, split, key=key)
    unlearned = time.perf_counter()
    try:
        scores = None
        if predicts(task):
            scores = (
                Scores.of_diverged()
                if outcome.diverged
                else evaluate(
                    outcome.model,
                    split,
                    task,
                    workers=workers,
                    retain_scored=retain_scored,
                    replicas=replicas,
                )
            )
    except NonFiniteError:
        # The last step went too far, and no loss was taken after it: the scores are the first to see.
        loop.undo_last_step()
        scores = Scores.of_diverged()
        last = len(outcome.history.get("step", ())) - 1
        outcome = replace(
            outcome, diverged={"step": last, "reason": "the outputs are not finite after the last step"}
        )
    if path is not None and replicas.is_first and not keep_checkpoint:
        path.unlink(missing_ok=True)
    result = _result(
        outcome, scores, time.perf_counter() - unlearned, method, split, seed, model, replicas.size
    )
    result.provenance.update(precision=precision, compile=compile)
    return result


def _result(
    outcome: Outcome,
    scores: Scores | None,
    evaluation_seconds: float,
    method: Method,
    split: ForgetSplit,
    seed: int,
    original: nn.Module,
    processes: int,
) -> Result:
    return Result(
        model=outcome.model,
        scores=scores,
        method=method,
        history=outcome.history,
        seconds=outcome.seconds,
        evaluation_seconds=evaluation_seconds,
        diverged=outcome.diverged,
        provenance=provenance_of(split, method, seed, original, processes),
    )


def provenance_of(
    split: ForgetSplit, method: Method, seed: int, original: nn.Module, processes: int
) -> dict[str, Any]:
    """What a run came from: split, seed, settings, original weights, versions, machine class, date."""
    return {
        "seed": seed,
        "split": split.facts(),
        "method": method.to_dict(),
        "original_weights": weights_digest(original),
        "environment": environment(str(next(original.parameters()).device)) | {"processes": processes},
    }


def check_run(model: nn.Module, method: Method, seed: int) -> None:
    """Raise, before anything is computed, if one of these is not what it should be."""
    _check_model(model)
    if not isinstance(method, Method):
        raise GradPivotError(f"the method is {method!r}; give one with its settings, such as CUP(gamma=0.5)")
    if not isinstance(seed, int):
        raise GradPivotError(f"the seed is {seed!r}; give a whole number")


def _check_model(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise GradPivotError(f"the model is a {type(model).__name__}; give a trained torch.nn.Module")
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise GradPivotError(
            "the model is wrapped in DistributedDataParallel; give model.module, unlearn() reduces itself"
        )
    for name, parameter in model.named_parameters():
        if is_sharded(parameter):
            raise GradPivotError(
                f"the weight {name} is sharded, and unlearn() copies whole models; give the model before fully_shard, "
                f"or use Pivot in a loop of your own"
            )
        if not math.isfinite(float(parameter.detach().double().sum())):
            raise GradPivotError(
                f"the weight {name} holds NaN or infinity before unlearning; load a sound checkpoint"
            )
