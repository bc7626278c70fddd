"""unlearn, score and train: one model or its scores."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from gradpivot.api.bars import show_progress
from gradpivot.errors import NotReachedWarning
from gradpivot.evaluate import Scored
from gradpivot.experiments import find_problem
from gradpivot.loop import Progress
from gradpivot.methods import CUP, Method
from gradpivot.runs import Options, Prepared, Result, Running, Trained, check_scorable, train_model
from gradpivot.runtime import Replicas
from gradpivot.targets import Targets, unlearn_until
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.evaluate import Scorer
    from gradpivot.experiments import Problem
    from gradpivot.methods import Retrain
    from gradpivot.tasks import Task

__all__ = ["Prepared", "score", "train", "unlearn"]


def unlearn(
    model: nn.Module,
    split: ForgetSplit,
    method: Method | None = None,
    *,
    seed: int = 0,
    task: Task | None = None,
    factory: Callable[[], nn.Module] | None = None,
    workers: int = 0,
    progress: bool | Progress = False,
    checkpoint: str | Path | None = None,
    retain_scored: int | None = None,
    precision: str = "float32",
    compile: bool = False,
    replicas: Replicas | None = None,
    scorer: Scorer | None = None,
    until: str | Mapping[str, float] | None = None,
    keep: str | Mapping[str, float] | None = None,
    references: Sequence[nn.Module] = (),
) -> Result:
    """Unlearn a copy of ``model`` and score it.

    With ``until``, and for CUP on splits that are not by class, runs need validation data. If the split has
    none, half of the test data serve as such and the other half gives the scores. Pass ``split.with_validation()`` to
    score other methods on the same half.

    Args:
        model: The trained model; not modified.
        split: What to forget; see :class:`gradpivot.ForgetSplit`.
        method: The unlearning method. Default: ``CUP()``.
        seed: The same seed, machine and thread count give bit-identical results.
        task: Runs the model on a batch. Default: classification of (input, label) batches.
        factory: Returns a newly initialised model, for ``Retrain``.
        workers: Data-loading processes for data that are not tensors. Does not affect the results.
        progress: Whether to show a progress bar, or a callback for (steps done, total steps).
        checkpoint: Checkpoint file; an interrupted run resumes from it.
        retain_scored: Number of retain samples used for RA, drawn at random but the same for every model. Default: all.
        precision: ``float32``, or ``bfloat16`` or ``float16`` for autocast of the forward and backward passes. Weights,
            Gram matrices and scores keep their dtype.
        compile: Whether to compile the losses with ``torch.compile``.
        replicas: The data-parallel processes. Default: the current process group, all of whose processes must then make
            this call. ``Replicas()`` uses this process alone.
        scorer: Scores the result. Default: the task's own scorer; else :class:`gradpivot.Scores` for classifiers,
            losses on forget and retain data for other models.
        until: Forget until these conditions hold, and no further: ``{"ua": 0.95}`` (minimum fractions) or ``"UA>=95"``
            (percent). Any registered metric works. Sets CUP's γ.
        keep: Conditions that must still hold, such as ``{"ra": 0.99}``.
        references: Models trained without the forget set, for conditions on RMIA.

    Returns:
        The new model, its scores, history and provenance. A diverged run has ``diverged`` set and the last finite
        weights. With ``until`` it is a :class:`gradpivot.Targeted`: either ``met``, or the best compromise
        with the binding condition.

    Warns:
        NotReachedWarning: If the run ended short of its degree or conditions; the text is
            :attr:`gradpivot.Result.missed`.

    Example:
        >>> result = unlearn(model, ForgetSplit.by_class(train, test, 3), CUP(gamma=0.5))
        >>> result.scores.ua, result.scores.ra
    """
    method = CUP() if method is None else method
    targets = None if until is None and keep is None else Targets.read(until, keep)
    with show_progress(progress, getattr(method, "title", "")) as report:
        running = Running(
            seed=seed,
            task=task or Classification(),
            factory=factory,
            workers=workers,
            progress=report,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            retain_scored=retain_scored,
            precision=precision,
            compile=compile,
            replicas=replicas or Replicas.current(),
            scorer=scorer,
            references=tuple(references),
        )
        prepared = Prepared.of(model, split, method, running, searches=targets is not None)
        result = prepared.run() if targets is None else unlearn_until(prepared, targets)
    if running.replicas.is_first and (missed := result.missed):
        warnings.warn(missed, NotReachedWarning, stacklevel=2)
    return result


def score(model: nn.Module, split: ForgetSplit, **options: Unpack[Options]) -> Scored:
    """Score a model: :class:`gradpivot.Scores` for a classifier, with one forward pass over each set.

    Args:
        model: Any model, trained or unlearned.
        split: The forget, retain and test sets.
        **options: As for :func:`unlearn`: ``task``, ``workers``, ``retain_scored``, ``replicas``, ``scorer``.
    """
    running = Running.of(**options)
    check_scorable(model, split, running.task if running.scorer is None else None)
    return running.scoring.scores(model, split)


def train(problem: Problem | str, recipe: Retrain | None = None, **options: Any) -> Trained:
    """Train a problem's model from scratch on all of its data; see :func:`gradpivot.runs.train_model`.

    Args:
        problem: Data, model and task, or a name such as ``"digits"`` or ``"my_module:my_problem"``.
        recipe: The training recipe. Default: the problem's own.
        **options: ``seed``, ``device``, ``precision``, ``compile``, ``workers``, ``evaluate_every``, ``checkpoint``, …

    Example:
        >>> trained = train("digits", seed=0)
        >>> trained.model, trained.test_accuracy
    """
    found = find_problem(problem) if isinstance(problem, str) else problem
    return train_model(found, recipe, **options)
