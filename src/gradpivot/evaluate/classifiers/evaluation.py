"""The scores of a model: one forward pass over each set serves every metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot.data import Loader, cut, shuffled
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate.metrics.registry import scored_metrics
from gradpivot.evaluate.scores import Scores
from gradpivot.models import weights_digest
from gradpivot.runtime import Replicas, derive, evaluating, isolated

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.tasks import Task

__all__ = ["Known", "evaluate", "predictions", "same_kind", "scored_part"]

# Numbers a batch holds on a CPU: what its layers pass on then stays in the cache. 64 images of 3×32×32; measured on
# ResNet-18 and ResNet-20 against 16 to 2,048 images (docs/speed.md).
_NUMBERS = 64 * 3 * 32 * 32
_MAX_BATCH = 512


class SetPredictions(NamedTuple):
    """Per-sample results over one set."""

    confidence: np.ndarray
    correct: np.ndarray

    def at(self, indices: np.ndarray) -> SetPredictions:
        """Those of some samples."""
        return SetPredictions(self.confidence[indices], self.correct[indices])


class Known:
    """What one model predicts on whole data sets, so that evaluations on many splits of them share the passes.

    Given to :func:`evaluate` again and again. Kept as long as the weights stay what they are, and found again for the
    same data, be they the same object or not; digests of their content tell both.
    """

    def __init__(self) -> None:
        self._weights: str | None = None
        self._sets: dict[tuple[str, str, str, int], SetPredictions] = {}

    def over(self, passes: _Passes, split: ForgetSplit, part: Literal["train", "test"]) -> SetPredictions:
        """The predictions on all samples of the training or the test set, in its order."""
        dataset = split.train if part == "train" else split.test
        # Half of the test set may have become validation data, which a data_id says nothing of.
        key = (split.data_digest, split.validation_source, part, len(dataset))
        if key not in self._sets:
            self._sets[key] = passes.over(dataset, np.arange(len(dataset)))
        return self._sets[key]

    def look_at(self, model: nn.Module) -> None:
        """Forget everything if these are not the weights of the last time."""
        weights = weights_digest(model)
        if weights != self._weights:
            self._weights, self._sets = weights, {}


def evaluate(
    model: nn.Module,
    split: ForgetSplit,
    task: Task,
    *,
    workers: int = 0,
    members_seed: int = 0,
    retain_scored: int | None = None,
    replicas: Replicas | None = None,
    known: Known | None = None,
) -> Scores:
    """Score a model on a split.

    Args:
        model: Put in eval mode for the passes, then back as it was.
        split: Which samples are which.
        task: How to run the model on a batch.
        workers: Data-loading processes; never changes a number.
        members_seed: Draws the members for the membership attack from the retain set.
        retain_scored: Score this many retain samples, the same random ones for every model; all of them if None. RA
            then has the interval of that many samples (:meth:`Scores.interval`).
        replicas: The processes that share the passes; those of the process group if not given. All must call this.
        known: Predictions of this very model from earlier splits of the same data, and a place for these. The passes
            then go over the whole test set, and over the whole training set unless only a part of it is scored.

    Returns:
        The scores. Members are as many retain samples as there are test samples in scope (fewer of both if
        the retain set is smaller), drawn from those that the retain pass has scored anyway.

    Raises:
        NonFiniteError: if the model's outputs are not finite.
    """
    kept = scored_part(split.retain_indices, retain_scored)
    found: dict[str, Any] = {}
    with evaluating(model):
        passes = _Passes(model, task, workers, replicas)
        if known is not None:
            known.look_at(model)
        if known is not None and len(kept) == len(split.retain_indices):
            forget, retain = (known.over(passes, split, "train").at(part) for part in (split.forget_indices, kept))
        else:
            forget, retain = (passes.over(split.train, part) for part in (split.forget_indices, kept))

        def over_test(part: np.ndarray) -> SetPredictions:
            if known is not None:
                return known.over(passes, split, "test").at(part)
            return passes.over(split.test, part)

        test = over_test(split.test_indices)
        if any("unseen" in metric.reads for metric in scored_metrics()) and len(alike := same_kind(split)):
            found["unseen"] = over_test(alike)
    balanced = min(len(retain.confidence), len(test.confidence))
    found |= {
        "forget": forget,
        "retain": retain,
        "test": test,
        "members": shuffled(retain.confidence, members_seed, "members")[:balanced],
        "nonmembers": shuffled(test.confidence, members_seed, "nonmembers")[:balanced],
    }
    values: dict[str, Any] = {f"n_{part}": len(found[part].correct) for part in ("forget", "retain", "test")}
    # scikit-learn draws from NumPy's global generator, and its first import from Python's.
    with isolated(derive(members_seed, "membership")):
        for metric in scored_metrics():
            if found.keys() >= set(metric.reads):
                values |= metric.measure(found)
    return Scores.of_measured(values)


def same_kind(split: ForgetSplit) -> np.ndarray:
    """The test samples of the forgotten classes, maybe none; for other forgetting the whole set is of the same kind."""
    if split.kind != "class":
        return np.arange(len(split.test))
    return np.flatnonzero(np.isin(split.test_labels, split.classes))


def scored_part(indices: np.ndarray, count: int | None) -> np.ndarray:
    """A fixed random part of the retain set, in order; all of it if ``count`` is None or as large.

    Raises:
        GradPivotError: for a count below 1.
    """
    if count is not None and count < 1:
        raise GradPivotError(f"retain_scored is {count}; give at least 1, or None for all retain samples")
    if count is None or count >= len(indices):
        return indices
    return np.sort(shuffled(indices, 0, "scored")[:count])


def predictions(
    model: nn.Module,
    dataset: Any,
    indices: np.ndarray,
    task: Task,
    *,
    workers: int = 0,
    replicas: Replicas | None = None,
) -> SetPredictions:
    """True-label confidence and correctness of some samples, in the order of ``indices``; the model is in eval mode.

    Of several processes each takes some of the same batches that one would make, so the numbers do not change.
    """
    return _Passes(model, task, workers, replicas).over(dataset, indices)


class _Passes:
    """Forward passes of one model."""

    def __init__(self, model: nn.Module, task: Task, workers: int = 0, replicas: Replicas | None = None) -> None:
        self._model, self._task, self._workers = model, task, workers
        self._replicas = replicas or Replicas.current()
        self._device = next(model.parameters()).device
        self._loaders: list[tuple[Any, Loader]] = []

    @torch.no_grad()
    def over(self, dataset: Any, indices: np.ndarray) -> SetPredictions:
        """The predictions on some samples, each from one pass."""
        loader = self._loader_of(dataset)
        confidence, correct = [], []
        with isolated(derive(0, "evaluate")):
            order = cut(indices, _batch_size(dataset, self._device))
            for batch in loader.batches(order[slice(*self._replicas.part(len(order))[:2])], epoch=-1):
                told = self._task.predict(self._model, batch)
                confidence.append(told.confidence.cpu().numpy())
                correct.append(told.correct.cpu().numpy())
        sides = zip(*self._replicas.gather((confidence, correct)), strict=True)
        joined = SetPredictions(*(np.concatenate([batch for own in side for batch in own]) for side in sides))
        if not np.isfinite(joined.confidence).all():
            raise NonFiniteError(
                "the model's outputs are not finite; its weights hold NaN or infinity, or its inputs do"
            )
        return joined

    def _loader_of(self, dataset: Any) -> Loader:
        """One for each data set: a loader may hold a copy of the data on the device."""
        found = next((loader for data, loader in self._loaders if data is dataset), None)
        if found is None:
            found = Loader(dataset, self._device, seed=0, workers=self._workers)
            self._loaders.append((dataset, found))
        return found


def _batch_size(dataset: Any, device: torch.device) -> int:
    """Samples a pass; a function of the data alone, because the last digits depend on it."""
    if device.type != "cpu":
        return _MAX_BATCH
    numbers = dataset.tensors[0][0].numel() if type(dataset) is TensorDataset else _NUMBERS // 64
    return max(8, min(_MAX_BATCH, _NUMBERS // max(numbers, 1)))
