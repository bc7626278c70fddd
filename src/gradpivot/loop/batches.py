"""Batch plans: which samples each step uses (paired, sequential, or plain shuffled)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gradpivot.data import batch_count, cut, default_batch_size, paired_order, shuffled, smallest_batch

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.loop.optimizers import DescentRecipe

__all__ = [
    "MIN_STATISTICS_BATCH",
    "Batch",
    "PairedBatch",
    "Plan",
    "describe_non_finite",
    "forget_batch_size",
    "forget_plan",
    "paired_plan",
    "plain_batch_size",
    "plain_plan",
    "recalibrated_batch_size",
    "retain_batch_size",
    "sequential_plan",
]

MIN_STATISTICS_BATCH = 64
"""Batch size from which a batch's variance is a good estimate."""


@dataclass(frozen=True)
class Batch:
    """One step's data: retain samples or forget samples."""

    data: Any
    progress: float
    """Progress of the run, from 0 at the first step to 1 at the last."""
    forgets: bool = False
    """Whether these are forget samples."""
    ends_epoch: bool = False
    """Whether this is the last batch of an epoch."""
    epoch: int = 0
    """Number of the epoch, from 0."""
    indices: np.ndarray | None = None
    """Indices into the training set, in batch order; not set by :meth:`Loop.batches`."""


@dataclass(frozen=True)
class PairedBatch:
    """One step's data: a forget batch and a retain batch."""

    forget: Any
    retain: Any
    progress: float
    """Progress of the run, from 0 at the first step to 1 at the last."""
    forget_indices: np.ndarray
    """Training-set indices of this process's part of the forget batch, in batch order."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The batches of a run, a pure function of seed and step, so that a resumed run continues with the same ones.

    Attributes:
        per_epoch: Steps per epoch.
        total: Steps in the run; the last epoch may be partial.
        smallest: Size of the smallest batch.
        order: Maps an epoch to its batches of indices, one list per side (forget and retain, or a single one).
        forget_steps: Number of steps at the start of an epoch that use forget samples only.
    """

    per_epoch: int
    total: int
    smallest: int
    order: Callable[[int], tuple[list[np.ndarray], ...]]
    forget_steps: int = 0

    def epochs_from(self, step: int) -> Iterator[tuple[int, list[list[np.ndarray]]]]:
        """Yield (epoch, remaining batches per side), starting at a step."""
        for epoch in range(self.epoch(step), -(-self.total // self.per_epoch)):
            first = epoch * self.per_epoch
            left = slice(max(step - first, 0), self.total - first)
            yield epoch, [side[left] for side in self.order(epoch)]

    def progress(self, step: int) -> float:
        """Progress of the run, from 0 at the first step to 1 at the last."""
        return step / max(self.total - 1, 1)

    def epoch(self, step: int) -> int:
        """The epoch of a step, from 0."""
        return step // self.per_epoch

    def forgets(self, step: int) -> bool:
        """Whether a step uses forget samples only."""
        return step % self.per_epoch < self.forget_steps

    def ends_epoch(self, step: int) -> bool:
        """Whether a step is the last of its epoch."""
        return (step + 1) % self.per_epoch == 0


def paired_plan(split: ForgetSplit, recipe: DescentRecipe, seed: int) -> Plan:
    """Each forget sample once per epoch, each batch paired with a new slice of the retain set."""
    forget, retain = split.forget_indices, split.retain_indices
    size = forget_batch_size(split, recipe)
    per_epoch, smallest = batch_count(len(forget), size), smallest_batch(len(forget), size)
    if recipe.retain_batch_size is not None:
        smallest = min(smallest, recipe.retain_batch_size, len(retain))
    return Plan(
        per_epoch=per_epoch,
        total=_steps(recipe, per_epoch),
        smallest=smallest,
        order=lambda epoch: paired_order(forget, retain, size, seed, epoch, recipe.retain_batch_size),
    )


def forget_plan(split: ForgetSplit, recipe: DescentRecipe, seed: int) -> Plan:
    """Each forget sample once per epoch, in the same batches as :func:`paired_plan`."""
    size = forget_batch_size(split, recipe)
    plan = _one_sided_plan(split.forget_indices, size, "forget", recipe, seed)
    return replace(plan, forget_steps=plan.per_epoch)


def sequential_plan(split: ForgetSplit, recipe: DescentRecipe, seed: int) -> Plan:
    """Per epoch, each forget sample once, then each retain sample once; one step per batch."""
    forget, retain = split.forget_indices, split.retain_indices
    size = forget_batch_size(split, recipe)
    retain_size = recipe.retain_batch_size or size
    forget_steps = batch_count(len(forget), size)
    per_epoch = forget_steps + batch_count(len(retain), retain_size)

    def order(epoch: int) -> tuple[list[np.ndarray]]:
        first = cut(shuffled(forget, seed, "forget", epoch), size)
        return (first + cut(shuffled(retain, seed, "retain", epoch), retain_size),)

    return Plan(
        per_epoch=per_epoch,
        total=_steps(recipe, per_epoch),
        smallest=min(smallest_batch(len(forget), size), smallest_batch(len(retain), retain_size)),
        order=order,
        forget_steps=forget_steps,
    )


def plain_plan(
    indices: np.ndarray, recipe: DescentRecipe, seed: int, order: Callable[[int], np.ndarray] | None = None
) -> Plan:
    """Shuffled batches of the given samples, for ordinary training; ``order`` chooses the samples of an epoch."""
    size = plain_batch_size(recipe)
    plan = _one_sided_plan(indices, size, "train", recipe, seed)
    return plan if order is None else replace(plan, order=lambda epoch: (cut(order(epoch), size),))


def _one_sided_plan(indices: np.ndarray, size: int, purpose: str, recipe: DescentRecipe, seed: int) -> Plan:
    """Each of the given samples once per epoch."""
    per_epoch = batch_count(len(indices), size)
    return Plan(
        per_epoch=per_epoch,
        total=_steps(recipe, per_epoch),
        smallest=smallest_batch(len(indices), size),
        order=lambda epoch: (cut(shuffled(indices, seed, purpose, epoch), size),),
    )


def describe_non_finite(indices: Sequence[np.ndarray], batches: Sequence[Any]) -> str:
    """Name the non-finite samples in a step's batches, as the end of a sentence; empty if there are none.

    Args:
        indices: Training-set indices per side.
        batches: The batch of each side.
    """
    for side, batch in zip(indices, batches, strict=True):
        for part in batch if isinstance(batch, tuple | list) else [batch]:
            if hasattr(part, "isfinite") and part.is_floating_point() and len(part) == len(side):
                wrong = ~part.isfinite().flatten(1).all(1) if part.ndim > 1 else ~part.isfinite()
                if bool(wrong.any()):
                    named = ", ".join(map(str, side[wrong.cpu().numpy()].tolist()))
                    return f": training samples {named} contain NaN or infinity"
    return ""


def forget_batch_size(split: ForgetSplit, recipe: DescentRecipe) -> int:
    """Forget samples per batch."""
    return recipe.batch_size or default_batch_size(len(split.forget_indices))


def retain_batch_size(split: ForgetSplit, recipe: DescentRecipe) -> int:
    """Retain samples per paired batch."""
    size = recipe.retain_batch_size or min(forget_batch_size(split, recipe), len(split.forget_indices))
    return min(size, len(split.retain_indices))


def recalibrated_batch_size(split: ForgetSplit, recipe: DescentRecipe) -> int:
    """Retain samples per paired batch where they set BatchNorm statistics: enough for a good estimate."""
    return max(retain_batch_size(split, recipe), MIN_STATISTICS_BATCH)


def plain_batch_size(recipe: DescentRecipe) -> int:
    """Batch size of ordinary training."""
    return recipe.batch_size or 64


def _steps(recipe: DescentRecipe, per_epoch: int) -> int:
    """Number of steps in the run."""
    return getattr(recipe, "iterations", None) or per_epoch * recipe.epochs
