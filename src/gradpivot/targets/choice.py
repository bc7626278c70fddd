r"""Choosing without an oracle: which model looks most like one retrained without the forgotten data, if nobody has one.

Δ = ‖A(retrain) − A(θ)‖ needs a retrained model. But what it would score can be said beforehand, from the original and
data it has never seen. A retrained model has never seen the forget set either, so

- RA*: the original's RA: both have learned the retain set by the same recipe;
- TA*: the original's accuracy on validation data (without the forgotten classes where classes are forgotten);
- UA*: 1 for whole classes, since nobody names a class of which there was no sample; for other forget sets, which are
  like any other data, the original's error on validation data;
- MIA*: 1 for whole classes; otherwise what the attack says of validation samples that it was not fitted to.

The point with the smallest Δ̂ = ‖A* − A(θ)‖ is chosen, all scores taken on forget, retain and validation data. The
final test part is not looked at. What this costs against the choice of somebody who has the retrained model is measured
in ``benchmarks/frontier.py`` and described in ``docs/frontier.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gradpivot.data import shuffled
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate import SetPredictions, evaluate, fixed_subset, predictions, threshold_attack
from gradpivot.results import distance
from gradpivot.runtime import evaluating
from gradpivot.targets.looking import steering_split
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.runs import Result
    from gradpivot.runtime import Replicas
    from gradpivot.tasks import Task

__all__ = ["Choice", "choose", "expected_row", "recommend"]

Row = tuple[float, ...]
"""RA, UA, TA and MIA, as fractions."""
EXPECTED = ("ra", "ua", "ta", "mia")
"""What can be said beforehand of a retrained model (see the module)."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A recommended point and why.

    Attributes:
        index: Which of the points it is.
        result: The run behind it, with its model; its ``scores`` had no part in the choice.
        expected: A*: what a retrained model is expected to score on forget, retain and validation data.
        seen: What the chosen model scores there.
        estimate: Δ̂, the distance of the two, as a fraction.
        kind: What was forgotten: ``class``, ``random``, ``index`` or ``predicate``.
    """

    index: int
    result: Result
    expected: Row
    seen: Row
    estimate: float
    kind: str

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary, without the model."""
        return {
            "index": self.index,
            "settings": self.result.method.to_dict(),
            "expected": dict(zip(EXPECTED, self.expected, strict=True)),
            "seen": dict(zip(EXPECTED, self.seen, strict=True)),
            "estimate": self.estimate,
            "reason": self.reason,
        }

    @property
    def reason(self) -> str:
        """Why, in one sentence, in percent."""
        why = (
            "no class that was never seen is named, and what is kept stays as it was"
            if self.kind == "class"
            else "forgotten samples look like never-seen ones, and what is kept stays as it was"
        )
        return (
            f"a retrained model is expected at {_told(self.expected)} ({why}); of these points "
            f"{self.result.method.label} is nearest with {_told(self.seen)}, Δ̂ {100 * self.estimate:.2f}"
        )


def recommend(
    model: nn.Module,
    split: ForgetSplit,
    candidates: Sequence[Result],
    *,
    task: Task | None = None,
    workers: int = 0,
    retain_scored: int | None = None,
    replicas: Replicas | None = None,
) -> Choice:
    """The candidate that is nearest to what a retrained model would be, without one.

    Args:
        model: The original.
        split: What was forgotten. Its validation data are looked at; without any, half of the test data are taken for
            it (:meth:`ForgetSplit.with_validation`), and only the other half is fit for final scores.
        candidates: Runs with their models; one that diverged is never chosen.
        task: How to run a model on a batch.
        workers: Data-loading processes; never changes a number.
        retain_scored: Take RA on this many retain samples.
        replicas: The processes that share the passes.

    Raises:
        GradPivotError: if no candidate is finite.
    """
    task = task or Classification()
    steering = steering_split(split.with_validation())
    expected = expected_row(model, steering, task, workers=workers, retain_scored=retain_scored, replicas=replicas)
    look = partial(_row, steering, task=task, workers=workers, retain_scored=retain_scored, replicas=replicas)
    rows = [None if candidate.diverged else look(candidate.model) for candidate in candidates]
    index = choose(rows, expected, [_intensity(candidate) for candidate in candidates])
    seen = rows[index]
    assert seen is not None
    return Choice(
        index=index,
        result=candidates[index],
        expected=expected,
        seen=seen,
        estimate=distance(seen, expected),
        kind=split.kind,
    )


def choose(rows: Sequence[Row | None], expected: Row, knobs: Sequence[float]) -> int:
    """Which row is nearest to the expected one; of equally near ones that with the smallest knob.

    Args:
        rows: A row for each point; None for one that is out of the question.
        expected: A*.
        knobs: How much each point forgets: the least that does it is enough.

    Raises:
        GradPivotError: if there is no row.
    """
    finite = [i for i, row in enumerate(rows) if row is not None]
    if not finite:
        raise GradPivotError("there is no finite point to recommend; lower lr, or trace other settings")
    # Rounded, so that the last digit of a square root does not decide between equal points.
    return min(finite, key=lambda i: (round(distance(rows[i] or (), expected), 12), knobs[i], rows[i]))


def expected_row(
    original: nn.Module,
    steering: ForgetSplit,
    task: Task,
    *,
    workers: int = 0,
    retain_scored: int | None = None,
    replicas: Replicas | None = None,
) -> Row:
    """A* = (RA*, UA*, TA*, MIA*), from the original and never-seen data; see the module.

    Args:
        original: The model before unlearning.
        steering: A split with validation data instead of test data.
        task: Runs the model on a batch.
        workers: Data-loading processes.
        retain_scored: Score this many retain samples.
        replicas: The processes that share the passes.
    """
    kept = fixed_subset(steering.retain_indices, retain_scored)
    with evaluating(original):
        over = partial(predictions, original, task=task, workers=workers, replicas=replicas)
        retain = over(steering.train, kept)
        unseen = over(steering.test, steering.test_indices)
    ra, ta = float(retain.correct.mean()), float(unseen.correct.mean())
    if steering.kind == "class":
        return ra, 1.0, ta, 1.0
    return ra, 1 - ta, ta, _share_of_unseen(retain, unseen)


def _share_of_unseen(retain: SetPredictions, unseen: SetPredictions) -> float:
    """The share of never-seen samples that the attack calls non-members; each half judged by a cut from the other."""
    order = shuffled(np.arange(len(unseen.confidence)), 0, "attack halves")
    halves = [unseen.confidence[part] for part in np.array_split(order, 2)]
    if len(halves[1]) == 0:
        raise GradPivotError("there is one validation sample, and an attack needs two; give more validation data")
    shares = []
    for fitted, judged in (halves, halves[::-1]):
        members = shuffled(retain.confidence, 0, "members")[: len(fitted)]
        shares.append(threshold_attack(members, fitted, judged).share)
    return float(np.mean(shares))


def _row(
    steering: ForgetSplit,
    model: nn.Module,
    *,
    task: Task,
    workers: int,
    retain_scored: int | None,
    replicas: Replicas | None,
) -> Row | None:
    try:
        scores = evaluate(model, steering, task, workers=workers, retain_scored=retain_scored, replicas=replicas)
    except NonFiniteError:
        return None
    return scores.vector(EXPECTED)


def _intensity(candidate: Result) -> float:
    knob = getattr(candidate.method, candidate.method.active_knob) if candidate.method.active_knob else None
    return float(knob) if isinstance(knob, int | float) else math.inf


def _told(row: Row) -> str:
    return ", ".join(f"{name.upper()} {100 * score:.2f}" for name, score in zip(EXPECTED, row, strict=True))
