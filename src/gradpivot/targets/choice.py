r"""Recommends the point of a frontier that is closest to a retrained model, without a retrained model.

Δ = ‖A(retrain) − A(θ)‖ needs the scores of a retrained model. They can be estimated from the original model and
held-out data, because a retrained model has not seen the forget set either:

- RA*: the original's RA. Both models are trained on the retain set with the same recipe.
- TA*: the original's accuracy on validation data, without the forgotten classes for class-wise forgetting.
- UA*: 1 for whole classes, because a model does not predict a class it has never seen. For other forget sets the
  original's error on validation data.
- MIA*: 1 for whole classes. For other forget sets the fraction of validation samples that the attack classifies as
  non-members, cross-fitted.

The recommended point has the smallest Δ̂ = ‖A* − A(θ)‖. If the attack cannot tell the original's retain samples from
validation data (balanced accuracy below 55 %), MIA is undetermined and Δ̂ leaves it out. All scores are on forget,
retain and validation data; the test data are not used. ``benchmarks/frontier.py`` compares the choice with that of a
retrained model; see ``docs/frontier.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

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

__all__ = ["Choice", "Expected", "choose", "expected_scores", "recommend"]

Row = tuple[float, ...]
"""RA, UA, TA and MIA, as fractions."""
EXPECTED = ("ra", "ua", "ta", "mia")
"""The metrics that can be estimated for a retrained model; see the module docstring."""


class Expected(NamedTuple):
    """A*, the expected scores of a retrained model, and whether MIA is determined."""

    row: Row
    mia_determined: bool

    @property
    def used(self) -> int:
        """Number of leading scores that Δ̂ uses: MIA comes last."""
        return len(self.row) if self.mia_determined else len(self.row) - 1


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A recommended point.

    Attributes:
        index: Index of the point.
        result: The run of the point, with its model. The choice does not use its ``scores``.
        expected: A*, the expected scores of a retrained model on forget, retain and validation data.
        seen: The scores of the chosen model on the same data.
        estimate: Δ̂, the distance between the two, as a fraction.
        kind: Kind of split: ``class``, ``random``, ``index`` or ``predicate``.
        mia_determined: Whether Δ̂ uses MIA.
    """

    index: int
    result: Result
    expected: Row
    seen: Row
    estimate: float
    kind: str
    mia_determined: bool = True

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary, without the model."""
        return {
            "index": self.index,
            "settings": self.result.method.to_dict(),
            "expected": dict(zip(EXPECTED, self.expected, strict=True)),
            "seen": dict(zip(EXPECTED, self.seen, strict=True)),
            "estimate": self.estimate,
            "mia_determined": self.mia_determined,
            "reason": self.reason,
        }

    @property
    def reason(self) -> str:
        """The reason for the choice in one sentence, in percent."""
        why = (
            "it would never predict the forgotten class"
            if self.kind == "class"
            else "it would treat the forgotten samples like held-out data"
        )
        return (
            f"{self.result.method.label} scores {_format_row(self.seen)}. That is closest to what a retrained model "
            f"should score, {_format_row(self.expected)}: {why} and keep the accuracy on the rest. The distance is "
            f"{100 * self.estimate:.2f} points"
            + ("" if self.mia_determined else " without MIA, which is undetermined here")
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
    """Choose the candidate closest to the expected scores of a retrained model.

    Args:
        model: The original model.
        split: The data to forget and to retain. If it has no validation data, half of the test data is used as
            validation data (:meth:`ForgetSplit.with_validation`); use only the other half for final scores.
        candidates: Runs with their models. Diverged ones are never chosen.
        task: Runs the model on a batch.
        workers: Data-loading processes. Does not affect the results.
        retain_scored: Measure RA on this many retain samples; on all if None.
        replicas: The data-parallel processes.

    Raises:
        GradPivotError: If all candidates diverged.
    """
    task = task or Classification()
    steering = steering_split(split.with_validation())
    expected = expected_scores(model, steering, task, workers=workers, retain_scored=retain_scored, replicas=replicas)
    score = partial(_row, steering, task=task, workers=workers, retain_scored=retain_scored, replicas=replicas)
    rows = [None if candidate.diverged else score(candidate.model) for candidate in candidates]
    used = expected.used
    shown = [row and row[:used] for row in rows]
    index = choose(shown, expected.row[:used], [_intensity(candidate) for candidate in candidates])
    seen = rows[index]
    assert seen is not None
    return Choice(
        index=index,
        result=candidates[index],
        expected=expected.row,
        seen=seen,
        estimate=distance(seen[:used], expected.row[:used]),
        kind=split.kind,
        mia_determined=expected.mia_determined,
    )


def choose(rows: Sequence[Row | None], expected: Row, knobs: Sequence[float]) -> int:
    """The index of the row closest to the expected one. Ties go to the smallest knob, which forgets least.

    Args:
        rows: One row per point; None for a point that cannot be chosen.
        expected: A*.
        knobs: Unlearning intensity of each point.

    Raises:
        GradPivotError: If all rows are None.
    """
    finite = [i for i, row in enumerate(rows) if row is not None]
    if not finite:
        raise GradPivotError("there is no finite point to recommend; lower lr, or trace other settings")
    # Round, so that floating-point error does not break ties.
    return min(finite, key=lambda i: (round(distance(rows[i] or (), expected), 12), knobs[i], rows[i]))


def expected_scores(
    original: nn.Module,
    steering: ForgetSplit,
    task: Task,
    *,
    workers: int = 0,
    retain_scored: int | None = None,
    replicas: Replicas | None = None,
) -> Expected:
    """A* = (RA*, UA*, TA*, MIA*), from the original model and held-out data; see the module docstring.

    Args:
        original: The model before unlearning.
        steering: A split with validation data instead of test data.
        task: Runs the model on a batch.
        workers: Data-loading processes.
        retain_scored: Score this many retain samples; all if None.
        replicas: The data-parallel processes.
    """
    kept = fixed_subset(steering.retain_indices, retain_scored)
    with evaluating(original):
        predict = partial(predictions, original, task=task, workers=workers, replicas=replicas)
        retain = predict(steering.train, kept)
        unseen = predict(steering.test, steering.test_indices)
    ra, ta = float(retain.correct.mean()), float(unseen.correct.mean())
    known = _members(retain, len(unseen.confidence))
    determined = threshold_attack(known, unseen.confidence, known).determined
    if steering.kind == "class":
        return Expected((ra, 1.0, ta, 1.0), determined)
    return Expected((ra, 1 - ta, ta, _nonmember_share(retain, unseen)), determined)


def _members(retain: SetPredictions, count: int) -> np.ndarray:
    return shuffled(retain.confidence, 0, "members")[:count]


def _nonmember_share(retain: SetPredictions, unseen: SetPredictions) -> float:
    """Fraction of held-out samples that the attack classifies as non-members, cross-fitted on two halves."""
    order = shuffled(np.arange(len(unseen.confidence)), 0, "attack halves")
    halves = [unseen.confidence[part] for part in np.array_split(order, 2)]
    if len(halves[1]) == 0:
        raise GradPivotError("there is one validation sample, but the attack needs two; use more validation data")
    shares = []
    for fitted, judged in (halves, halves[::-1]):
        shares.append(threshold_attack(_members(retain, len(fitted)), fitted, judged).share)
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


def _format_row(row: Row) -> str:
    return ", ".join(f"{name.upper()} {100 * score:.2f}" for name, score in zip(EXPECTED, row, strict=True))
