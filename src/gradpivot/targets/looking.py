"""Looking: the scores of a model on forget, retain and validation data, by as few forward passes as the question needs.

It is given a split whose test part is the validation data (:func:`steering_split`), so that the final test part is not
even within its reach.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gradpivot.data import shuffled
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate import (
    SetPredictions,
    find_metric,
    fixed_subset,
    matching_test_indices,
    predictions,
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
"""What a forward pass of a sample costs, in gradients of a sample: a backward pass takes two forward passes' work."""
MAX_RETAIN_SAMPLES = 2000
RETAIN_SHARE = 0.15
"""RA is looked at on all retain samples, but on no more than 2,000 if that costs over this share of a plain run."""
FRAGILE = 16
"""A quick look takes this part of the retain samples: those the model was least sure of."""


def steering_split(split: ForgetSplit) -> ForgetSplit:
    """The split with its validation data as test data. The original test data are removed."""
    return replace(split, test=split.validation, validation=None, validation_source="none")


def check_measurable(split: ForgetSplit, metrics: Collection[str], called: str) -> None:
    """Raise if a metric needs test samples of the forgotten classes, and there are none.

    Args:
        split: Whose test part.
        metrics: What is to be measured.
        called: What that part is to whoever reads the error.

    Raises:
        GradPivotError: with what to do.
    """
    needs = [name.upper() for name in metrics if "unseen" in find_metric(name).reads]
    if needs and len(matching_test_indices(split)) == 0:
        raise GradPivotError(
            f"the {called} data have no sample of a forgotten class to compare with, and {needs[0]} cannot be "
            f"measured; give {called} data that have, or ask for UA or MIA"
        )


class Looks(Protocol):
    """What a search steers by."""

    tells_degree: bool
    """Whether UA is the degree of forgetting that CUP can be asked for."""
    is_limited: bool
    """Whether what looks cost counts towards the search's budget."""
    spent: float
    """The looks so far, in plain runs."""

    @property
    def sizes(self) -> dict[str, int]:
        """How many samples of each kind are looked at."""
        ...

    def look(self, model: nn.Module, metrics: Collection[str], *, quick: bool = False) -> Seen:
        """The scores that are asked for."""
        ...


class Looker:
    """Scores models on a split without its test part, and counts what that costs.

    Args:
        split: What :func:`steering_split` gave.
        task: How to run a model on a batch.
        plain: Per-sample gradients of a plain run, the unit in which the cost of scoring is reported.
        retain_scored: RA on so many retain samples, as the final scores; on all (or see ``RETAIN_SHARE``) if None.
        workers: Data-loading processes.
        replicas: The processes that share the passes.
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
    ) -> None:
        self._split, self._task, self._plain = split, task, plain
        self._options: dict[str, Any] = {"workers": workers, "replicas": replicas}
        affordable = max(MAX_RETAIN_SAMPLES, int(RETAIN_SHARE * plain / FORWARD))
        self._retain = fixed_subset(split.retain_indices, retain_scored)
        self._retain = fixed_subset(self._retain, affordable)
        self._last_retain: SetPredictions | None = None
        self.spent = 0.0
        """The looks so far, in plain runs."""

    @property
    def sizes(self) -> dict[str, int]:
        """How many samples of each set are looked at."""
        return {
            "forget": len(self._split.forget_indices),
            "retain": len(self._retain),
            "validation": len(self._split.test),
        }

    def look(self, model: nn.Module, metrics: Collection[str], *, quick: bool = False) -> Seen:
        """The scores that are asked for.

        Args:
            model: Put in eval mode for the passes, then back as it was.
            metrics: Names of :class:`Seen`'s scores.
            quick: Take RA on the retain samples alone that the last full look was least sure of; the others count as
                they did there.
        """
        check_measurable(self._split, metrics, "validation")
        found: dict[str, float] = {}
        read = _Read(self._readers(model, quick))
        try:
            with evaluating(model):
                for name in steering_metrics():
                    if name in metrics:
                        found[name] = find_metric(name).measure(read)[name]
                for name in steering_metrics():
                    # What one set tells costs nothing once that set was passed over.
                    parts = find_metric(name).reads
                    if name not in found and len(parts) == 1 and parts[0] in read.data:
                        found[name] = find_metric(name).measure(read)[name]
        except NonFiniteError:
            return Seen.of_nothing()
        return Seen(**found)

    def _readers(self, model: nn.Module, quick: bool) -> dict[str, Callable[[_Read], Any]]:
        """How each of what metrics read is got; members and non-members as :func:`gradpivot.evaluate.evaluate` does."""
        split, retain = self._split, self._retain
        balanced = min(len(retain), len(split.test_indices))
        places = shuffled(np.arange(len(retain)), 0, "members")[:balanced]

        def members(read: _Read) -> np.ndarray:
            if "retain" in read.data:
                return np.asarray(read["retain"].confidence[places])
            return self._over(model, split.train, retain[places]).confidence

        return {
            "forget": lambda _: self._over(model, split.train, split.forget_indices),
            "retain": lambda _: self._retain_predictions(model, quick),
            "test": lambda _: self._over(model, split.test, split.test_indices),
            "unseen": lambda _: self._over(model, split.test, matching_test_indices(split)),
            "members": members,
            "nonmembers": lambda read: shuffled(read["test"].confidence, 0, "nonmembers")[:balanced],
        }

    def _retain_predictions(self, model: nn.Module, quick: bool) -> SetPredictions:
        if not quick or self._last_retain is None:
            self._last_retain = self._over(model, self._split.train, self._retain)
            return self._last_retain
        last = self._last_retain
        fragile = np.sort(np.argsort(last.confidence, kind="stable")[: -(-len(self._retain) // FRAGILE)])
        now = self._over(model, self._split.train, self._retain[fragile])
        confidence, correct = last.confidence.copy(), last.correct.copy()
        confidence[fragile], correct[fragile] = now
        return SetPredictions(confidence, correct)

    def _over(self, model: nn.Module, dataset: Any, indices: np.ndarray) -> SetPredictions:
        self.spent += FORWARD * len(indices) / self._plain
        return predictions(model, dataset, indices, self._task, **self._options)


class _Read(UserDict[str, Any]):
    """Predictions by set, each passed over when it is first read."""

    def __init__(self, readers: dict[str, Callable[[_Read], Any]]) -> None:
        super().__init__()
        self._readers = readers

    def __missing__(self, part: str) -> Any:
        self.data[part] = self._readers[part](self)
        return self.data[part]
