"""Scores of a classifier during a search, on forget, retain and validation data, in as few passes as possible.

The split has validation data instead of test data (:func:`steering_split`), so a search cannot use the test data.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gradpivot.data import shuffled
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate import (
    MAX_RELEARNED,
    ReferencePredictions,
    SetPredictions,
    find_metric,
    fixed_subset,
    matching_test_indices,
    predictions,
    recovered_correctness,
    recovery_batches,
    recovery_ways,
    relearn_plan,
    relearned_correctness,
    steering_metrics,
)
from gradpivot.runtime import evaluating
from gradpivot.targets.conditions import Seen

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.runtime import Replicas
    from gradpivot.tasks import Task

__all__ = ["FORWARD", "Looker", "Looks", "check_measurable", "steering_split"]

FORWARD = 1 / 3
"""Cost of a forward pass, in gradients: a backward pass costs as much as two forward passes."""
MAX_RETAIN_SAMPLES = 2000
RETAIN_SHARE = 0.15
"""If RA on all retain samples costs more than this share of a plain run, use fewer, but at least 2,000."""
QUICK_DIVISOR = 16
"""A quick measurement uses 1/16 of the retain samples: the least confident ones."""


def steering_split(split: ForgetSplit) -> ForgetSplit:
    """The split with its validation data as test data, and without its own test data."""
    return replace(split, test=split.validation, validation=None, validation_source="none")


def check_measurable(
    split: ForgetSplit, metrics: Collection[str], called: str, references: Sequence[nn.Module] = ()
) -> None:
    """Raise if data or models that a metric needs are missing.

    Args:
        split: The split whose test data are used.
        metrics: The metrics to measure.
        called: What the error message calls these data.
        references: Models that never saw the forget set.

    Raises:
        GradPivotError: If a metric cannot be measured.
    """
    reads = {part: name.upper() for name in metrics for part in find_metric(name).reads}
    if "unseen" in reads and len(matching_test_indices(split)) == 0:
        raise GradPivotError(
            f"the {called} data have no sample of a forgotten class, so {reads['unseen']} cannot be measured; add some "
            f"to the {called} data, or use UA or MIA"
        )
    if "references" in reads and not references:
        raise GradPivotError(
            f"{reads['references']} needs reference models; pass references=[model, …], trained without the forget "
            f"set, to unlearn()"
        )
    if "relearned" in reads:
        relearn_plan(split)
    if "recovered" in reads:
        recovery_batches(split)


class Looks(Protocol):
    """Protocol: measures scores for a search."""

    tells_degree: bool
    """Whether UA is the degree of forgetting that γ sets."""
    is_limited: bool
    """Whether the cost of measurements counts towards the budget of the search."""
    spent: float
    """Cost of the measurements so far, in plain runs."""

    @property
    def sizes(self) -> dict[str, int]:
        """Number of samples measured in each set."""
        ...

    def look(self, model: nn.Module, metrics: Collection[str], *, quick: bool = False) -> Seen:
        """Measure the given metrics."""
        ...


class Looker:
    """Measures scores of classifiers without the test data, and counts the cost.

    Args:
        split: From :func:`steering_split`.
        task: Runs the model on a batch.
        plain: Per-sample gradients of a plain run, the unit of cost.
        retain_scored: Measure RA on this many retain samples; if None on all, within ``RETAIN_SHARE``.
        workers: Data-loading processes.
        replicas: The data-parallel processes.
        references: Models that never saw the forget set, for RMIA.
    """

    tells_degree = True
    is_limited = True

    def __init__(
        self,
        split: ForgetSplit,
        task: Task,
        plain: float,
        *,
        retain_scored: int | None = None,
        workers: int = 0,
        replicas: Replicas | None = None,
        references: Sequence[nn.Module] = (),
    ) -> None:
        self._split, self._task, self._plain = split, task, plain
        self._references = references
        self._reference_predictions: ReferencePredictions | None = None
        self._options: dict[str, Any] = {"workers": workers, "replicas": replicas}
        affordable = max(MAX_RETAIN_SAMPLES, int(RETAIN_SHARE * plain / FORWARD))
        self._retain = fixed_subset(split.retain_indices, retain_scored)
        self._retain = fixed_subset(self._retain, affordable)
        self._last_retain: SetPredictions | None = None
        self.spent = 0.0
        """Cost of the measurements so far, in plain runs."""

    @property
    def sizes(self) -> dict[str, int]:
        """Number of samples measured in each set."""
        return {
            "forget": len(self._split.forget_indices),
            "retain": len(self._retain),
            "validation": len(self._split.test),
        }

    def look(self, model: nn.Module, metrics: Collection[str], *, quick: bool = False) -> Seen:
        """Measure the given metrics, and others that need no further forward pass.

        Args:
            model: The model; its mode is restored.
            metrics: Names of metrics.
            quick: Update RA only on the least confident retain samples of the last full measurement.
        """
        check_measurable(self._split, metrics, "validation", self._references)
        found: dict[str, float] = {}
        read = _LazyPredictions(self._readers(model, quick))
        try:
            with evaluating(model):
                for name in steering_metrics():
                    if name in metrics:
                        found[name] = find_metric(name).measure(read)[name]
                for name in steering_metrics():
                    # Free: metrics of a set that already has predictions.
                    parts = find_metric(name).reads
                    if name not in found and len(parts) == 1 and parts[0] in read.data:
                        found[name] = find_metric(name).measure(read)[name]
        except NonFiniteError:
            return Seen.of_nothing()
        return Seen(**found)

    def _readers(self, model: nn.Module, quick: bool) -> dict[str, Callable[[_LazyPredictions], Any]]:
        """Functions that compute each input of a metric, consistent with :func:`gradpivot.evaluate.evaluate`."""
        split, retain = self._split, self._retain
        balanced = min(len(retain), len(split.test_indices))
        places = shuffled(np.arange(len(retain)), 0, "members")[:balanced]

        def members(read: _LazyPredictions) -> np.ndarray:
            if "retain" in read.data:
                return np.asarray(read["retain"].confidence[places])
            return self._predict(model, split.train, retain[places]).confidence

        return {
            "forget": lambda _: self._predict(model, split.train, split.forget_indices),
            "retain": lambda _: self._retain_predictions(model, quick),
            "test": lambda _: self._predict(model, split.test, split.test_indices),
            "unseen": lambda _: self._predict(model, split.test, matching_test_indices(split)),
            "members": members,
            "nonmembers": lambda read: shuffled(read["test"].confidence, 0, "nonmembers")[:balanced],
            "relearned": lambda _: self._relearn(model),
            "recovered": lambda _: self._recover(model),
            "references": lambda _: self._reference(),
        }

    def _relearn(self, model: nn.Module) -> np.ndarray:
        plan = relearn_plan(self._split)
        self.spent += plan.gradients / self._plain
        return relearned_correctness(
            model, self._split, self._task, plan, self._predict, workers=self._options["workers"]
        )

    def _recover(self, model: nn.Module) -> np.ndarray:
        per_way = sum(map(len, recovery_batches(self._split)))
        self.spent += len(recovery_ways(model)) * per_way / self._plain
        records = fixed_subset(self._split.forget_indices, MAX_RELEARNED)
        return recovered_correctness(
            model, self._split, self._task, records, self._predict, workers=self._options["workers"]
        )

    def _reference(self) -> ReferencePredictions:
        """Predictions of the reference models, made once."""
        if self._reference_predictions is None:
            split = self._split
            forget, unseen = [], []
            for model in self._references:
                with evaluating(model):
                    forget.append(self._predict(model, split.train, split.forget_indices).confidence)
                    unseen.append(self._predict(model, split.test, matching_test_indices(split)).confidence)
            found = ReferencePredictions(np.stack(forget), np.stack(unseen), split.kind == "class")
            self._reference_predictions = found
        return self._reference_predictions

    def _retain_predictions(self, model: nn.Module, quick: bool) -> SetPredictions:
        if not quick or self._last_retain is None:
            self._last_retain = self._predict(model, self._split.train, self._retain)
            return self._last_retain
        last = self._last_retain
        uncertain = np.sort(np.argsort(last.confidence, kind="stable")[: -(-len(self._retain) // QUICK_DIVISOR)])
        now = self._predict(model, self._split.train, self._retain[uncertain])
        confidence, correct = last.confidence.copy(), last.correct.copy()
        confidence[uncertain], correct[uncertain] = now
        return SetPredictions(confidence, correct)

    def _predict(self, model: nn.Module, dataset: Any, indices: np.ndarray) -> SetPredictions:
        self.spent += FORWARD * len(indices) / self._plain
        return predictions(model, dataset, indices, self._task, **self._options)


class _LazyPredictions(UserDict[str, Any]):
    """Predictions by set, each computed on first access."""

    def __init__(self, readers: dict[str, Callable[[_LazyPredictions], Any]]) -> None:
        super().__init__()
        self._readers = readers

    def __missing__(self, part: str) -> Any:
        self.data[part] = self._readers[part](self)
        return self.data[part]
