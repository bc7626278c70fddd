"""Worlds of an audit: the retain set plus a random half of the forget set, for shadow models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset, TensorDataset

from gradpivot.data.loader import Collated
from gradpivot.data.split import ForgetSplit
from gradpivot.errors import GradPivotError
from gradpivot.runtime import derive

__all__ = ["world_split"]


def world_split(split: ForgetSplit, world: int, seed: int = 0) -> tuple[ForgetSplit, np.ndarray]:
    """The split of one world, and which records of ``split.forget_indices`` (the targets) are in it.

    The world's training data are the retain set, followed by each target with probability 1/2; its forget set are the
    targets inside. Retained records come first, so their indices are the same in every world and a model retrained
    without the targets does not depend on who was inside. At least one target is inside and one outside. Records that
    are already forgotten, and held-out samples of classes that are, belong to no world.

    Args:
        split: The audited split. Test and validation data are kept, and so is the kind ``class``; every other kind
            becomes ``index``.
        world: Number of the world.
        seed: Seed of all worlds.

    Raises:
        GradPivotError: If there are fewer than two targets.
    """
    inside = _draw(len(split.forget_indices), derive(seed, "world", world))
    kept = np.concatenate([split.retain_indices, split.forget_indices[inside]])
    reduced = replace(
        split,
        train=_selected(split.train, kept),
        test=_known(split, split.test),
        validation=_known(split, split.validation),
        already_forgotten=np.empty(0, dtype=np.int64),
        retain_indices=np.arange(len(split.retain_indices)),
        forget_indices=np.arange(len(split.retain_indices), len(kept)),
        kind="class" if split.kind == "class" else "index",
        seed=None,
        # Names the data without hashing every world's copy.
        data_id=f"{split.hash}/world {world} of {seed}",
    )
    return reduced, inside


def _draw(count: int, seed: int) -> np.ndarray:
    """Membership of each target, never all or none of them."""
    if count < 2:
        raise GradPivotError("the forget set has one record; worlds need at least two, one inside and one outside")
    inside: np.ndarray = (torch.rand(count, generator=torch.Generator().manual_seed(seed)) < 0.5).numpy()
    if inside.all() or not inside.any():
        inside[0] = not inside[0]
    inside.setflags(write=False)
    return inside


def _known(split: ForgetSplit, data: Any) -> Any:
    """Held-out data without the classes that earlier requests deleted."""
    return _selected(data, split.known_indices(data)) if data is not None and split.deleted_classes else data


def _selected(dataset: Any, indices: np.ndarray) -> Any:
    """Some samples of a dataset; tensors stay tensors, which are read much faster."""
    if isinstance(dataset, Collated):
        return Collated(_selected(dataset.dataset, indices), dataset.collate_fn)
    # Not isinstance: a subclass may change the samples.
    if type(dataset) is TensorDataset:
        at = torch.from_numpy(indices)
        return TensorDataset(*(tensor[at.to(tensor.device)] for tensor in dataset.tensors))
    return Subset(dataset, indices.tolist())
