"""Trains an original model on all of a problem's data, in the same :class:`gradpivot.loop.Loop` as unlearning.

:class:`gradpivot.methods.retrain.Retrain` trains the reference, without the forgotten data.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from gradpivot.data import ForgetSplit, batch_count
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate import HeldOutScore, score_on_test
from gradpivot.loop import Loop, Outcome, Progress, plain_batch_size
from gradpivot.models import constants, structure
from gradpivot.runs.checks import check_fits
from gradpivot.runtime import environment

if TYPE_CHECKING:
    from gradpivot.experiments import Problem
    from gradpivot.methods import Retrain
    from gradpivot.tasks import Task

__all__ = ["Epoch", "FitToAll", "Trained", "everything", "train_model"]


@dataclass(frozen=True)
class Epoch:
    """One pass over the training data.

    Attributes:
        number: Counts from 1.
        train_loss: Mean loss over its batches, with augmentation and label smoothing.
        test_accuracy: Accuracy on the whole test set at its end; None if not evaluated.
    """

    number: int
    train_loss: float
    test_accuracy: float | None


@dataclass(frozen=True, kw_only=True, repr=False)
class Trained:
    """The result of training.

    Attributes:
        model: The trained model, in eval mode; the last finite weights if training diverged.
        recipe: The training recipe.
        epochs: Loss and accuracy per epoch.
        test_accuracy: Final test accuracy; None for a generator or if training diverged.
        test_loss: Final test loss of a generator; None for a classifier or if training diverged.
        seconds: Training time, including interrupted parts but not evaluation.
        evaluation_seconds: Time spent on scoring the test set.
        images_per_second: Training throughput.
        diverged: Step and reason if training diverged, else None.
        provenance: Data, seed, recipe, precision, versions, machine class, date.
    """

    model: nn.Module
    recipe: Retrain
    epochs: tuple[Epoch, ...]
    test_accuracy: float | None
    test_loss: float | None
    seconds: float
    evaluation_seconds: float
    images_per_second: float
    diverged: dict[str, Any] | None
    provenance: dict[str, Any]

    def __repr__(self) -> str:
        scored = (
            f"test loss {self.test_loss}" if self.test_accuracy is None else f"{100 * self.test_accuracy:.2f} % test"
        )
        return f"Trained({self.recipe.label}: {scored}; {self.seconds:.1f} s)"


class FitToAll:
    """Ordinary training on all of the data, as a method that :class:`gradpivot.loop.Loop` can run.

    Args:
        recipe: The training recipe.
        watch: Called after every step with the model, the loop and whether the step ends an epoch; returns extra
            columns for the history.
    """

    def __init__(
        self, recipe: Retrain, watch: Callable[[nn.Module, Loop, bool], Mapping[str, float | None]] | None = None
    ) -> None:
        self._recipe, self._watch = recipe, watch

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Train ``model`` from a new initialisation, on the forget set too, but not on what is already forgotten."""
        loop.initialise(model)
        watch = self._watch
        self._recipe.fit(
            model,
            task,
            split.train,
            np.sort(np.concatenate([split.forget_indices, split.retain_indices])),
            loop,
            None if watch is None else lambda ends: watch(model, loop, ends),
        )


def everything(problem: Problem) -> ForgetSplit:
    """A problem's data as a split. The forget set is a placeholder, which training ignores."""
    train, test = problem.datasets()
    return ForgetSplit.by_index(train, test, [0], target=problem.target)


def train_model(
    problem: Problem,
    recipe: Retrain | None = None,
    *,
    data: ForgetSplit | None = None,
    seed: int = 0,
    device: str = "cpu",
    precision: str = "float32",
    compile: bool = False,
    workers: int = 0,
    evaluate_every: int = 1,
    progress: Progress | None = None,
    tell: Callable[[Epoch], None] | None = None,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 30.0,
) -> Trained:
    """Train a problem's model on all of its training data, from a new initialisation.

    Training resumed from a checkpoint ends with bit-identical weights. Evaluation does not affect them.

    Args:
        problem: Data, model and task; its pretrained weights are not used.
        recipe: The training recipe. Default: the problem's.
        data: The data, from :func:`everything`. Default: load them.
        seed: Seeds initialisation, batch order, augmentation and dropout.
        device: Device to train on.
        precision: Precision of forward and backward passes, one of :data:`gradpivot.loop.precision.PRECISIONS`.
        compile: Whether to use ``torch.compile``.
        workers: Data-loading processes for data that are not tensors. Does not affect the results.
        evaluate_every: Score the test set every so many epochs and at the end; 0 means only at the end.
        progress: Called with (steps done, total steps).
        tell: Called at the end of each epoch.
        checkpoint: Checkpoint file, or None. It is kept at the end, until the caller has saved the result.
        checkpoint_seconds: Interval between checkpoints.

    Raises:
        GradPivotError: If ``evaluate_every`` is negative.
    """
    if evaluate_every < 0:
        raise GradPivotError(
            f"evaluate_every is {evaluate_every}; use a number of epochs, or 0 to evaluate only at the end"
        )
    recipe = recipe or problem.training
    task = problem.task
    split = data or everything(problem)
    model = problem.model()
    check_fits(model, split, task)
    model = model.to(device)
    facts = {
        "problem": problem.name,
        "data": split.data_digest,
        "model": type(model).__name__,
        "recipe": recipe.to_dict(),
        "seed": seed,
        "device": device,
        "precision": precision,
        "compile": compile,
    }
    monitor = _EpochMonitor(recipe, split, task, evaluate_every, workers, tell)
    loop = Loop(
        seed=seed,
        workers=workers,
        factory=problem.model,
        progress=progress,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        precision=precision,
        compile=compile,
    )
    outcome = loop.run(FitToAll(recipe, monitor), model, task, split, key=_key(facts, model))
    outcome, score, last_seconds = _score(outcome, loop, split, task, workers)
    evaluation_seconds = sum(outcome.history.get("evaluation_seconds", ())) + last_seconds
    seconds = outcome.seconds + last_seconds - evaluation_seconds
    steps = len(outcome.history.get("step", ()))
    return Trained(
        model=outcome.model.eval(),
        recipe=recipe,
        epochs=monitor.finished(outcome.history, score.accuracy, outcome.diverged is not None),
        test_accuracy=score.accuracy,
        test_loss=score.loss,
        seconds=seconds,
        evaluation_seconds=evaluation_seconds,
        images_per_second=steps / monitor.per_epoch * len(split.train) / seconds,
        diverged=outcome.diverged,
        provenance={**facts, "environment": environment(device)},
    )


def _score(
    outcome: Outcome, loop: Loop, split: ForgetSplit, task: Task, workers: int
) -> tuple[Outcome, HeldOutScore, float]:
    """Score the trained model; returns the outcome, its score and the seconds scoring took.

    If the outputs are not finite, undoes the last step and marks the outcome as diverged.
    """
    started = time.perf_counter()
    if outcome.diverged:
        return outcome, HeldOutScore(), 0.0
    try:
        score = score_on_test(outcome.model, split, task, workers)
    except NonFiniteError as error:
        loop.undo_last_step()
        last = len(outcome.history["step"]) - 1
        return replace(outcome, diverged={"step": last, "reason": str(error)}), HeldOutScore(), 0.0
    return outcome, score, time.perf_counter() - started


class _EpochMonitor:
    """Evaluates the model at the end of epochs. Its state is in the history, which checkpoints save."""

    def __init__(
        self,
        recipe: Retrain,
        split: ForgetSplit,
        task: Task,
        every: int,
        workers: int,
        tell: Callable[[Epoch], None] | None,
    ) -> None:
        self.per_epoch = batch_count(len(split.train), plain_batch_size(recipe))
        self._last, self._tell = recipe.epochs, tell
        self._every = every
        self._split, self._task, self._workers = split, task, workers

    def __call__(self, model: nn.Module, loop: Loop, ends_epoch: bool) -> dict[str, float | None]:
        columns: dict[str, float | None] = {"test_accuracy": None, "evaluation_seconds": 0.0}
        if not ends_epoch:
            return columns
        losses = loop.recorded("retain_loss")
        number = len(losses) // self.per_epoch
        if number == self._last:
            # Scored after the run, because BatchNorm statistics may still be recalibrated.
            return columns
        if self._every and number % self._every == 0:
            started = time.perf_counter()
            # If outputs are not finite, the next loss isn't either, and the loop stops the run.
            with suppress(NonFiniteError):
                score = score_on_test(model, self._split, self._task, self._workers, final=False)
                columns["test_accuracy"] = score.accuracy
            columns["evaluation_seconds"] = time.perf_counter() - started
        self._report(Epoch(number, statistics.fmean(losses[-self.per_epoch :]), columns["test_accuracy"]))
        return columns

    def finished(
        self, history: Mapping[str, Sequence[Any]], accuracy: float | None, diverged: bool
    ) -> tuple[Epoch, ...]:
        """All complete epochs of a finished run. The last one gets the final accuracy."""
        losses, accuracies = (history.get(name, ()) for name in ("retain_loss", "test_accuracy"))
        ends = range(self.per_epoch, len(losses) + 1, self.per_epoch)
        epochs = [
            Epoch(number, statistics.fmean(losses[end - self.per_epoch : end]), accuracies[end - 1])
            for number, end in enumerate(ends, 1)
        ]
        if len(epochs) == self._last and not diverged:
            epochs[-1] = replace(epochs[-1], test_accuracy=accuracy)
            self._report(epochs[-1])
        return tuple(epochs)

    def _report(self, epoch: Epoch) -> None:
        if self._tell:
            self._tell(epoch)


def _key(facts: Mapping[str, Any], model: nn.Module) -> str:
    """The checkpoint key: a hash of everything that affects the weights, including the model's structure."""
    described = [facts, structure(model), constants(model)]
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]
