"""The verbs that give one model or its scores: unlearn, score, train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from gradpivot.api.shown import shown_progress
from gradpivot.evaluate import Scored
from gradpivot.experiments import find_problem
from gradpivot.loop import Progress
from gradpivot.methods import CUP, Method
from gradpivot.runs import Options, Prepared, Result, Running, Trained, train_model
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
) -> Result:
    """Make a copy of ``model`` forget, and score it.

    Args:
        model: The trained model; it is not changed.
        split: What to forget; see :class:`gradpivot.ForgetSplit`.
        method: How; ``CUP()`` if not given.
        seed: Same seed, machine and thread count: the same numbers to the last digit.
        task: How to run the model on a batch; classification of (input, label) batches if not given.
        factory: Makes a newly initialised model, for ``Retrain``.
        workers: Data-loading processes for data that are not tensors; never changes a number.
        progress: Show a bar, or call a function with (steps done, steps in all).
        checkpoint: A file to keep a resumable state in; a run that was killed continues from it.
        retain_scored: Take RA on this many retain samples, the same random ones for every model; on all if not given.
        precision: ``float32``, or ``bfloat16`` or ``float16`` for autocast around the losses; weights, Gram matrices
            and scores are computed as ever.
        compile: Let ``torch.compile`` make the losses' code.
        replicas: The processes that do it together; all of the process group if there is one, and every one of them
            must then call this. ``Replicas()`` for this process alone.
        scorer: How what comes out is scored; if not given, the task's own scorer, RA, UA, TA and MIA for models that
            predict, and losses on forget and retain data for others.
        until: Forget until these conditions hold, and no more: ``{"ua": 0.95}`` (fractions, at least) or ``"UA>=95"``
            (percent), about any registered metric. CUP's γ is then set by them. The test data are divided:
            one half steers unless the split has validation data, the other gives the final scores. So does CUP on
            records (a split that is not by class), with or without this; make the split by ``.with_validation()`` to
            have other methods scored on the same.
        keep: While these hold, such as ``{"ra": 0.99}``.

    Returns:
        The new model, its scores, history and provenance. A run that goes to NaN comes back with ``diverged`` set and
        the last finite weights. With ``until`` it is a :class:`gradpivot.Targeted`: ``met``, or the condition that
        binds and the best compromise.

    Example:
        >>> result = unlearn(model, ForgetSplit.by_class(train, test, 3), CUP(gamma=0.5))
        >>> result.scores.ua, result.scores.ra
    """
    method = CUP() if method is None else method
    targets = None if until is None and keep is None else Targets.read(until, keep)
    with shown_progress(progress, getattr(method, "title", "")) as report:
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
        )
        prepared = Prepared.of(model, split, method, running, searches=targets is not None)
        return prepared.run() if targets is None else unlearn_until(prepared, targets)


def score(model: nn.Module, split: ForgetSplit, **options: Unpack[Options]) -> Scored:
    """Score a model without unlearning: RA, UA, TA and MIA for a classifier, from one forward pass over each set.

    Args:
        model: Any model, trained or unlearned.
        split: The forget, retain and test sets.
        **options: As for :func:`unlearn`: ``task``, ``workers``, ``retain_scored``, ``replicas``, ``scorer``.
    """
    return Running.of(**options).scoring.scores(model, split)


def train(problem: Problem | str, recipe: Retrain | None = None, **options: Any) -> Trained:
    """Train a problem's model on all of its data, from a new initialisation; see :func:`gradpivot.runs.train_model`.

    Args:
        problem: Data, model and task, or a name such as ``"digits"`` or ``"my_module:my_problem"``.
        recipe: How to train; the problem's own if not given.
        **options: ``seed``, ``device``, ``precision``, ``compile``, ``workers``, ``evaluate_every``, ``checkpoint``, …

    Example:
        >>> trained = train("digits", seed=0)
        >>> trained.model, trained.test_accuracy
    """
    found = find_problem(problem) if isinstance(problem, str) else problem
    return train_model(found, recipe, **options)
