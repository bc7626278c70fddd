r"""Recommends the point of a frontier that is closest to a retrained model, without a retrained model.

Δ = ‖A(retrain) − A(θ)‖ needs the scores of a retrained model. They can be estimated from the original model and
held-out data, because a retrained model has not seen the forget set either:

- RA*: the original's RA. Both models are trained on the retain set with the same recipe.
- TA*: the original's accuracy on validation data, without the forgotten classes for class-wise forgetting.
- UA* and MIA* of whole classes: 1, because a model does not predict a class it has never seen.
- AUC* of records: anything that ``until="AUC<=55"`` accepts, 45 to 55 %, because smaller differences are mostly noise.

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

from gradpivot.data import shuffled
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate import evaluate, find_metric, fixed_subset, predictions, threshold_attack
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
"""The scores of :func:`expected_metrics`, as fractions."""
AUC_TOLERANCE = 0.05
"""An AUC within this distance of its ideal counts as ideal, as for ``until="AUC<=55"``."""


def expected_metrics(kind: str) -> tuple[str, ...]:
    """The metrics that can be estimated for a retrained model; see the module docstring."""
    return ("ra", "ua", "ta", "mia") if kind == "class" else ("ra", "ta", "auc")


class Expected(NamedTuple):
    """A*, the expected scores of a retrained model, and whether MIA is determined."""

    row: Row
    mia_determined: bool
    tolerance: Row = (0.0,) * 4
    """Differences to A* that count as none."""

    @property
    def used(self) -> int:
        """Number of leading scores that Δ̂ uses: MIA comes last."""
        return len(self.row) if self.mia_determined else len(self.row) - 1

    def gaps(self, seen: Row) -> Row:
        """The differences to A* that count, without a score that Δ̂ leaves out."""
        parts = zip(seen, self.row, self.tolerance, strict=True)
        return tuple(max(0.0, abs(score - wanted) - free) for score, wanted, free in parts)[: self.used]


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
        mia_determined: Whether the last score, which an attack gives, takes part; True for records.
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
            "expected": self._named(self.expected),
            "seen": self._named(self.seen),
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
            f"{self.result.method.label} scores {self._text(self.seen)}. That is closest to what a retrained model "
            f"should score, {self._text(self.expected)}: {why} and keep the accuracy on the rest. The distance is "
            f"{100 * self.estimate:.2f} points"
            + ("" if self.mia_determined else " without MIA, which is undetermined here")
        )

    def _named(self, row: Row) -> dict[str, float]:
        return dict(zip(expected_metrics(self.kind), row, strict=True))

    def _text(self, row: Row) -> str:
        return ", ".join(f"{find_metric(name).symbol} {100 * score:.2f}" for name, score in self._named(row).items())


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
    gaps = [row and expected.gaps(row) for row in rows]
    perfect = (0.0,) * expected.used
    index = choose(gaps, perfect, [_intensity(candidate) for candidate in candidates])
    seen, missed = rows[index], gaps[index]
    assert seen is not None
    assert missed is not None
    return Choice(
        index=index,
        result=candidates[index],
        expected=expected.row,
        seen=seen,
        estimate=distance(missed, perfect),
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
    """A* from the original model and held-out data; see the module docstring.

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
    if steering.kind != "class":
        return Expected((ra, ta, find_metric("auc").low), True, (0.0, 0.0, AUC_TOLERANCE))
    known = shuffled(retain.confidence, 0, "members")[: len(unseen.confidence)]
    determined = threshold_attack(known, unseen.confidence, known).determined
    return Expected((ra, 1.0, ta, 1.0), determined)


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
    return scores.vector(expected_metrics(steering.kind))


def _intensity(candidate: Result) -> float:
    knob = getattr(candidate.method, candidate.method.active_knob) if candidate.method.active_knob else None
    return float(knob) if isinstance(knob, int | float) else math.inf
