"""Fetch batches by index: from device-resident tensors if the data are tensors, otherwise through a DataLoader.

The caller chooses the indices of each batch. The DataLoader seeds each sample by seed, epoch and index, so random
augmentation does not depend on the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, default_collate

from gradpivot.data.augmentation import Augmentation, check_augmentable
from gradpivot.errors import GradPivotError, check_parallel
from gradpivot.runtime import derive, isolated, reseed

__all__ = ["Collate", "Collated", "Loader"]

Collate = Callable[[list[Any]], Any]
"""Turns a list of samples into a batch, like a DataLoader's ``collate_fn``."""


class Collated(Dataset[Any]):
    """A dataset with its own ``collate_fn``.

    Args:
        dataset: A map-style dataset.
        collate_fn: Pads, packs or lists samples of different sizes.
    """

    def __init__(self, dataset: Any, collate_fn: Collate) -> None:
        self.dataset, self.collate_fn = dataset, collate_fn

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]


class Loader:
    """Fetches batches of one dataset onto one device.

    Args:
        dataset: A map-style dataset. A ``TensorDataset`` is moved to the device once and indexed there; a
            :class:`Collated` dataset collates its own batches.
        device: Device of the batches.
        seed: The run's seed, for random augmentation.
        workers: DataLoader workers; they never change the results.
    """

    def __init__(self, dataset: Any, device: torch.device, seed: int, workers: int = 0) -> None:
        self._dataset = dataset
        self._device = device
        self._seed = seed
        check_parallel("workers", workers, least=0)
        self._workers = workers
        tensors = _tensors_of(dataset)
        self._resident = None if tensors is None else tuple(tensor.to(device) for tensor in tensors)

    def batches(self, indices: Sequence[np.ndarray], epoch: int, augment: str | None = None) -> Iterator[Any]:
        """Yield one batch per array of indices, in order.

        Args:
            indices: Sample indices of each batch.
            epoch: Seeds random augmentation, together with the run's seed and the sample's index.
            augment: One of :data:`gradpivot.data.augmentation.AUGMENTATIONS`; None means ``none``.
        """
        augmentation = None
        if augment not in (None, "none"):
            check_augmentable(self._resident, augment)
            augmentation = Augmentation(augment, len(self._dataset), self._seed, epoch)
        if self._resident is not None:
            for chosen, at in zip(indices, self._positions(indices), strict=True):
                batch = tuple([tensor[at] for tensor in self._resident])
                yield batch if augmentation is None else (augmentation(batch[0], chosen), *batch[1:])
            return
        loader = DataLoader(
            _Seeded(self._dataset, self._seed, epoch),
            batch_sampler=[chosen.tolist() for chosen in indices],
            num_workers=self._workers,
            # By default a DataLoader draws from the caller's global generator.
            generator=torch.Generator().manual_seed(0),
            collate_fn=_collate_of(self._dataset),
        )
        try:
            for batch in loader:
                yield _moved(batch, self._device)
        except _UnstackableError as error:
            # Strip the traceback that a worker process adds.
            raise _UnstackableError(str(error).strip().rpartition("UnstackableError: ")[2]) from None

    def _positions(self, indices: Sequence[np.ndarray]) -> Sequence[torch.Tensor]:
        """The indices on the device; all batches are moved there together."""
        if not indices:
            return ()
        together = torch.from_numpy(np.concatenate(indices)).to(self._device)
        return torch.split_with_sizes(together, [len(chosen) for chosen in indices])


class _UnstackableError(GradPivotError):
    """Samples differ in size or have a type that default_collate does not support."""


def _stacked(samples: list[Any]) -> Any:
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError, KeyError) as error:
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        raise _UnstackableError(
            f"the samples cannot be stacked into a batch ({cause}); pad or pack them in a collate_fn, for example "
            f"ForgetSplit.by_class(train, test, 3, collate_fn=pad)"
        ) from None


def _collate_of(dataset: Any) -> Collate:
    """The collate function of a dataset or of the dataset a Subset wraps."""
    if isinstance(dataset, Collated):
        return dataset.collate_fn
    return _collate_of(dataset.dataset) if isinstance(dataset, Subset) else _stacked


def _tensors_of(dataset: Any) -> tuple[torch.Tensor, ...] | None:
    """The tensors of a TensorDataset or a Subset of one; None for other classes.

    Subclasses do not count: they may change the samples, for example by augmentation.
    """
    if type(dataset) is TensorDataset:
        return dataset.tensors
    if type(dataset) is Subset:
        inner = _tensors_of(dataset.dataset)
        return None if inner is None else tuple(tensor[list(dataset.indices)] for tensor in inner)
    return None


class _Seeded(Dataset[Any]):
    """A view of a dataset that seeds each sample.

    ``__getitems__`` isolates the caller's generators once per batch: that takes ten times as long as seeding.
    """

    def __init__(self, dataset: Any, seed: int, epoch: int) -> None:
        self._dataset, self._seed, self._epoch = dataset, seed, epoch

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        with isolated():
            return [self._drawn(index) for index in indices]

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def _drawn(self, index: int) -> Any:
        reseed(derive(self._seed, "sample", self._epoch, index))
        return self._dataset[index]


def _moved(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: _moved(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_moved(part, device) for part in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(_moved(part, device) for part in batch)
    return batch
