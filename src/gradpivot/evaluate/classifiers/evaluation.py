"""Score a classifier: one forward pass over each set serves every metric."""

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

__all__ = [
    "PredictionCache", "ReferencePredictions", "SetPredictions", "evaluate", "fixed_subset", "matching_test_indices",
    "predictions",
]  # fmt: skip

# Elements per batch on a CPU, so that activations stay in the cache. 64 images of 3×32×32 were the fastest of 16 to
# 2,048 on ResNet-18 and ResNet-20 (docs/performance.md).
_BATCH_ELEMENTS = 64 * 3 * 32 * 32
_MAX_BATCH = 512


class SetPredictions(NamedTuple):
    """Per-sample true-label confidence and correctness over one set."""

    confidence: np.ndarray
    correct: np.ndarray

    def at(self, indices: np.ndarray) -> SetPredictions:
        """The predictions at ``indices``."""
        return SetPredictions(self.confidence[indices], self.correct[indices])


class ReferencePredictions(NamedTuple):
    """True-label confidences of models that never saw the forget set, one row per model."""

    forget: np.ndarray
    unseen: np.ndarray
    is_class: bool
    """Whether whole classes were forgotten."""


class PredictionCache:
    """One model's predictions on whole data sets, shared by evaluations on many splits.

    Pass the same instance to every :func:`evaluate` call. Weights and data are identified by digests of their content:
    other weights empty the cache.
    """

    def __init__(self) -> None:
        self._weights: str | None = None
        self._sets: dict[tuple[str, str, str, int], SetPredictions] = {}

    def over(self, passes: _Passes, split: ForgetSplit, part: Literal["train", "test"]) -> SetPredictions:
        """Predictions on all samples of the training or test set, in order."""
        dataset = split.train if part == "train" else split.test
        # The digest does not show whether half of the test set became validation data.
        key = (split.data_digest, split.validation_source, part, len(dataset))
        if key not in self._sets:
            self._sets[key] = passes.over(dataset, np.arange(len(dataset)))
        return self._sets[key]

    def bind(self, model: nn.Module) -> None:
        """Empty the cache if the weights have changed since the last call."""
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
    cache: PredictionCache | None = None,
) -> Scores:
    """Score a model on a split.

    Args:
        model: Evaluated in eval mode; its mode is restored afterwards.
        split: The forget, retain and test sets.
        task: Runs the model on a batch.
        workers: Data-loading processes. Does not affect the scores.
        members_seed: Seed for drawing the attack's members from the retain set.
        retain_scored: Score this many retain samples, the same random subset for every model; all if None.
            :meth:`Scores.interval` of RA uses this size.
        replicas: Processes that share the passes; the current process group by default. All of them must call this.
        cache: Predictions of the same model on other splits of this data. The passes then cover the whole test set,
            and the whole training set unless ``retain_scored`` is given.

    Returns:
        The scores. The attack uses equally many members (scored retain samples) and non-members (test samples in
        scope).

    Raises:
        NonFiniteError: If the model's outputs are not finite.
    """
    kept = fixed_subset(split.retain_indices, retain_scored)
    found: dict[str, Any] = {}
    with evaluating(model):
        passes = _Passes(model, task, workers, replicas)
        if cache is not None:
            cache.bind(model)
        if cache is not None and len(kept) == len(split.retain_indices):
            forget, retain = (cache.over(passes, split, "train").at(part) for part in (split.forget_indices, kept))
        else:
            forget, retain = (passes.over(split.train, part) for part in (split.forget_indices, kept))

        def over_test(part: np.ndarray) -> SetPredictions:
            if cache is not None:
                return cache.over(passes, split, "test").at(part)
            return passes.over(split.test, part)

        test = over_test(split.test_indices)
        metrics = scored_metrics(split.kind)
        if split.kind != "class":
            found["unseen"] = test
        elif any("unseen" in metric.reads for metric in metrics) and len(alike := matching_test_indices(split)):
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
        for metric in metrics:
            if found.keys() >= set(metric.reads):
                values |= metric.measure(found)
    return Scores.from_measurements(values)


def matching_test_indices(split: ForgetSplit) -> np.ndarray:
    """Indices of the test samples that correspond to the forget set.

    The forgotten classes' samples (possibly none) for class-wise forgetting, else all test samples in scope.
    """
    if split.kind != "class":
        return split.test_indices
    return np.flatnonzero(np.isin(split.test_labels, split.classes))


def fixed_subset(indices: np.ndarray, count: int | None) -> np.ndarray:
    """A fixed random subset of ``count`` indices, in order; all of them if ``count`` is None or too large.

    Raises:
        GradPivotError: If ``count`` is below 1.
    """
    if count is not None and not (isinstance(count, int | np.integer) and count >= 1):
        raise GradPivotError(f"retain_scored is {count!r}; it must be at least 1, or None for all retain samples")
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
    """True-label confidence and correctness in the order of ``indices``. Expects the model in eval mode.

    Several processes divide the batches that one process would make, so the number of processes does not affect the
    results.
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
        """Predictions on the samples at ``indices``."""
        loader = self._loader_of(dataset)
        confidence, correct = [], []
        with isolated(derive(0, "evaluate")):
            order = cut(indices, _batch_size(dataset, self._device))
            for batch in loader.batches(order[slice(*self._replicas.part(len(order))[:2])], epoch=-1):
                predicted = self._task.predict(self._model, batch)
                confidence.append(predicted.confidence.cpu().numpy())
                correct.append(predicted.correct.cpu().numpy())
        sides = zip(*self._replicas.gather((confidence, correct)), strict=True)
        joined = SetPredictions(*(np.concatenate([batch for own in side for batch in own]) for side in sides))
        if not np.isfinite(joined.confidence).all():
            raise NonFiniteError("the model's outputs are not finite: its weights or inputs contain NaN or infinity")
        return joined

    def _loader_of(self, dataset: Any) -> Loader:
        """One loader per data set, because a loader may hold a copy of the data on the device."""
        found = next((loader for data, loader in self._loaders if data is dataset), None)
        if found is None:
            found = Loader(dataset, self._device, seed=0, workers=self._workers)
            self._loaders.append((dataset, found))
        return found


def _batch_size(dataset: Any, device: torch.device) -> int:
    """Samples per batch. Depends on the data and the device type only, because rounding depends on it."""
    if device.type != "cpu":
        return _MAX_BATCH
    numbers = dataset.tensors[0][0].numel() if type(dataset) is TensorDataset else _BATCH_ELEMENTS // 64
    return max(8, min(_MAX_BATCH, _BATCH_ELEMENTS // max(numbers, 1)))
