"""Read the labels of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

from gradpivot.data.loader import Collated
from gradpivot.errors import GradPivotError
from gradpivot.runtime import derive, isolated, reseed

__all__ = ["Target", "default_target", "labels_of", "sample_at"]

Target = Callable[[Any], Any]
"""Returns the label of a sample."""


def default_target(sample: Any) -> Any:
    """The label of an (input, label) sample or of a dictionary with a common label key."""
    if isinstance(sample, Mapping):
        for key in ("target", "label", "labels", "y", "targets"):
            if key in sample:
                return sample[key]
    if isinstance(sample, Sequence) and not isinstance(sample, str) and len(sample) == 2:
        return sample[1]
    raise GradPivotError(
        f"cannot find the label in a sample of type {type(sample).__name__}; pass target=lambda sample: … to return it"
    )


def sample_at(dataset: Any, index: int) -> Any:
    """A sample, with the same random transform at every call."""
    reseed(derive(0, "digest", index))
    return dataset[index]


def labels_of(dataset: Any, target: Target) -> np.ndarray:
    """All labels; avoids loading the inputs if the dataset stores its labels separately."""
    if isinstance(dataset, Collated):
        return labels_of(dataset.dataset, target)
    with isolated():
        if target is default_target:
            if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
                numbers: np.ndarray = dataset.tensors[1].numpy(force=True)
                return _checked_labels(numbers)
            known = getattr(dataset, "targets", None)
            if known is not None and _targets_match(known, dataset):
                known = known.numpy(force=True) if isinstance(known, torch.Tensor) else known
                return _checked_labels(np.asarray(known))
        return _checked_labels(np.asarray([_label(target, sample_at(dataset, i)) for i in range(len(dataset))]))


def _targets_match(known: Any, dataset: Any) -> bool:
    """Whether ``dataset.targets`` match the samples' labels; a target_transform would change those."""
    if len(known) != len(dataset):
        return False
    positions = np.unique(np.linspace(0, len(dataset) - 1, 64).astype(int)).tolist()
    return all(int(known[i]) == _label(default_target, sample_at(dataset, i)) for i in positions)


def _label(target: Target, sample: Any) -> int:
    label = target(sample)
    try:
        return int(label)
    except (TypeError, ValueError):
        raise GradPivotError(
            f"a label is {label!r}; it must be an integer: map labels to 0, 1, … with target=lambda sample: …"
        ) from None


def _checked_labels(labels: np.ndarray) -> np.ndarray:
    if labels.ndim > 1 and labels.size == len(labels):
        labels = labels.reshape(-1)
    if labels.ndim != 1:
        raise GradPivotError(
            f"the labels have shape {labels.shape}; they must be one integer per sample, not one-hot vectors"
        )
    return labels
