"""An original model: ordinary training on all of a problem's data, by the same Loop that unlearns.

The retrained reference is the same without the forgotten data (:class:`gradpivot.methods.retrain.Retrain`).
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
        number: 1, 2, …
        train_loss: The mean loss of its batches, as they were trained on (augmented, smoothed).
        test_accuracy: On the whole test set after it; None where it was not asked for.
    """

    number: int
    train_loss: float
    test_accuracy: float | None


@dataclass(frozen=True, kw_only=True, repr=False)
class Trained:
    """What training gave.

    Attributes:
        model: In eval mode; the last finite weights if training diverged.
        recipe: What was followed.
        epochs: Loss and accuracy of each.
        test_accuracy: Of ``model``; None if training diverged, and for a generator.
        test_loss: Of a generator's ``model``; None if training diverged, and where there is an accuracy.
        seconds: Wall-clock of training, that of interrupted parts included, evaluation not.
        evaluation_seconds: Wall-clock of scoring the test set.
        images_per_second: Training samples over ``seconds``.
        diverged: None, or the step and the reason.
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
    """Ordinary training on all of the data, behind the interface that the Loop runs.

    Args:
        recipe: How.
        watch: Called after every step with model, loop and whether it ends an epoch; gives columns for the history.
    """

    def __init__(
        self, recipe: Retrain, watch: Callable[[nn.Module, Loop, bool], Mapping[str, float | None]] | None = None
    ) -> None:
        self._recipe, self._watch = recipe, watch

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Train ``model`` from a new initialisation; what will be forgotten is learned here."""
        loop.initialise(model)
        look = self._watch
        self._recipe.fit(
            model,
            task,
            split.train,
            np.arange(len(split.train)),
            loop,
            None if look is None else lambda ends: look(model, loop, ends),
        )


def everything(problem: Problem) -> ForgetSplit:
    """A problem's data and their digest; what its first sample is called does not matter to training."""
    train, test = problem.load()
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

    Killed and called again with the same checkpoint, it ends with the same weights, bit for bit. Evaluation does not
    change them either.

    Args:
        problem: Data, model and task; weights that it brings are not used.
        recipe: How to train; the problem's own if not given.
        data: What to train and test on, as :func:`everything` gives it; loaded here if not given.
        seed: Decides initialisation, order, augmentation and dropout.
        device: Where.
        precision: One of :data:`gradpivot.loop.precision.PRECISIONS`, for the losses' passes.
        compile: Let ``torch.compile`` make their code.
        workers: Data-loading processes for data that are not tensors; never changes a number.
        evaluate_every: Score the test set after every so many epochs; after the last one in any case, and 0 means
            only then.
        progress: Called with (steps done, steps in all).
        tell: Called at the end of each epoch.
        checkpoint: Where to keep a resumable state, left for a caller who has yet to write the result down.
        checkpoint_seconds: How often to write it.
    """
    if evaluate_every < 0:
        raise GradPivotError(f"evaluate_every is {evaluate_every}; give a number of epochs, or 0 for the end")
    recipe = recipe or problem.training
    task = problem.task
    split = data or everything(problem)
    model = problem.model().to(device)
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
    watching = _Watching(recipe, split, task, evaluate_every, workers, tell)
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
    outcome = loop.run(FitToAll(recipe, watching), model, task, split, key=_key(facts, model))
    outcome, score, last_seconds = _scored(outcome, loop, split, task, workers)
    evaluation_seconds = sum(outcome.history.get("evaluation_seconds", ())) + last_seconds
    seconds = outcome.seconds + last_seconds - evaluation_seconds
    steps = len(outcome.history.get("step", ()))
    return Trained(
        model=outcome.model.eval(),
        recipe=recipe,
        epochs=watching.finished(outcome.history, score.accuracy, outcome.diverged is not None),
        test_accuracy=score.accuracy,
        test_loss=score.loss,
        seconds=seconds,
        evaluation_seconds=evaluation_seconds,
        images_per_second=steps / watching.per_epoch * len(split.train) / seconds,
        diverged=outcome.diverged,
        provenance={**facts, "environment": environment(device)},
    )


def _scored(
    outcome: Outcome, loop: Loop, split: ForgetSplit, task: Task, workers: int
) -> tuple[Outcome, HeldOutScore, float]:
    """What came out, how good it is and the seconds that took.

    A last step that went too far is taken back.
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


class _Watching:
    """Looks at the model at the end of epochs, and remembers through the history, which checkpoints keep."""

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
            # Scored after the run: BatchNorm's statistics may yet be recalibrated.
            return columns
        if self._every and number % self._every == 0:
            started = time.perf_counter()
            # Where outputs are not finite the next loss is not either, and the Loop's guard ends the run.
            with suppress(NonFiniteError):
                seen = score_on_test(model, self._split, self._task, self._workers, final=False)
                columns["test_accuracy"] = seen.accuracy
            columns["evaluation_seconds"] = time.perf_counter() - started
        self._told(Epoch(number, statistics.fmean(losses[-self.per_epoch :]), columns["test_accuracy"]))
        return columns

    def finished(
        self, history: Mapping[str, Sequence[Any]], accuracy: float | None, diverged: bool
    ) -> tuple[Epoch, ...]:
        """Every whole epoch of a run that has ended; the last one has the model's final accuracy."""
        losses, accuracies = (history.get(name, ()) for name in ("retain_loss", "test_accuracy"))
        ends = range(self.per_epoch, len(losses) + 1, self.per_epoch)
        epochs = [
            Epoch(number, statistics.fmean(losses[end - self.per_epoch : end]), accuracies[end - 1])
            for number, end in enumerate(ends, 1)
        ]
        if len(epochs) == self._last and not diverged:
            epochs[-1] = replace(epochs[-1], test_accuracy=accuracy)
            self._told(epochs[-1])
        return tuple(epochs)

    def _told(self, epoch: Epoch) -> None:
        if self._tell:
            self._tell(epoch)


def _key(facts: Mapping[str, Any], model: nn.Module) -> str:
    """What a checkpoint belongs to: everything that decides a number, and the structure of the model."""
    described = [facts, structure(model), constants(model)]
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]
