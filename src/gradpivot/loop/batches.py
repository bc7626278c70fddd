"""Which samples each step of a run sees: forget and retain side by side, one after the other, or plain shuffled."""

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
    "Batch",
    "PairedBatch",
    "Plan",
    "bad_data",
    "forget_batch_size",
    "forget_plan",
    "paired_plan",
    "plain_batch_size",
    "plain_plan",
    "retain_batch_size",
    "sequential_plan",
]


@dataclass(frozen=True)
class Batch:
    """One step's data: samples to keep or samples to forget."""

    data: Any
    progress: float
    """How much of the run is done, from 0 at the first step to 1 at the last."""
    forgets: bool = False
    """Whether these are samples to forget."""
    ends_epoch: bool = False
    """Whether every sample has been seen once more after this; told by :meth:`Loop.batches` alone."""
    indices: np.ndarray | None = None
    """Which training samples these are, in their order; not given by :meth:`Loop.batches`."""


@dataclass(frozen=True)
class PairedBatch:
    """One step's data: forget samples and as many fresh retain samples."""

    forget: Any
    retain: Any
    progress: float
    """How much of the run is done, from 0 at the first step to 1 at the last."""
    forget_indices: np.ndarray
    """Which training samples the forget batch holds, in its order; of several processes, this one's part."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The batches of a run, a pure function of seed and step: a resumed run goes on with the same ones.

    Attributes:
        per_epoch: Steps of one pass.
        total: Steps of the run; the last pass may end early.
        smallest: How many samples its smallest batch has.
        order: An epoch's batches as indices, a list for each side: forget and retain, or the one there is.
        forgetting: How many steps of an epoch, the first ones, are over forget samples alone.
    """

    per_epoch: int
    total: int
    smallest: int
    order: Callable[[int], tuple[list[np.ndarray], ...]]
    forgetting: int = 0

    def epochs_from(self, step: int) -> Iterator[tuple[int, list[list[np.ndarray]]]]:
        """(Epoch, what is left of its batches by side) from a step on."""
        for epoch in range(step // self.per_epoch, -(-self.total // self.per_epoch)):
            first = epoch * self.per_epoch
            left = slice(max(step - first, 0), self.total - first)
            yield epoch, [side[left] for side in self.order(epoch)]

    def progress(self, step: int) -> float:
        """How much of the run is done, from 0 at the first step to 1 at the last."""
        return step / max(self.total - 1, 1)

    def forgets(self, step: int) -> bool:
        """Whether a step is over forget samples alone."""
        return step % self.per_epoch < self.forgetting

    def ends_epoch(self, step: int) -> bool:
        """Whether every sample has been seen once more after a step."""
        return (step + 1) % self.per_epoch == 0


def paired_plan(split: ForgetSplit, recipe: DescentRecipe, seed: int) -> Plan:
    """Every forget sample once an epoch, each batch beside a fresh slice of the retain set."""
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
    """Every forget sample once an epoch, in the batches of :func:`paired_plan`."""
    size = forget_batch_size(split, recipe)
    plan = _one_sided_plan(split.forget_indices, size, "forget", recipe, seed)
    return replace(plan, forgetting=plan.per_epoch)


def sequential_plan(split: ForgetSplit, recipe: DescentRecipe, seed: int) -> Plan:
    """Every forget sample once an epoch, then every retain sample once: a step for each batch."""
    forget, retain = split.forget_indices, split.retain_indices
    size = forget_batch_size(split, recipe)
    retain_size = recipe.retain_batch_size or size
    forgetting = batch_count(len(forget), size)
    per_epoch = forgetting + batch_count(len(retain), retain_size)

    def order(epoch: int) -> tuple[list[np.ndarray]]:
        first = cut(shuffled(forget, seed, "forget", epoch), size)
        return (first + cut(shuffled(retain, seed, "retain", epoch), retain_size),)

    return Plan(
        per_epoch=per_epoch,
        total=_steps(recipe, per_epoch),
        smallest=min(smallest_batch(len(forget), size), smallest_batch(len(retain), retain_size)),
        order=order,
        forgetting=forgetting,
    )


def plain_plan(indices: np.ndarray, recipe: DescentRecipe, seed: int) -> Plan:
    """Plain shuffled batches of some samples, for training."""
    return _one_sided_plan(indices, plain_batch_size(recipe), "train", recipe, seed)


def _one_sided_plan(indices: np.ndarray, size: int, purpose: str, recipe: DescentRecipe, seed: int) -> Plan:
    """Every one of some samples once an epoch."""
    per_epoch = batch_count(len(indices), size)
    return Plan(
        per_epoch=per_epoch,
        total=_steps(recipe, per_epoch),
        smallest=smallest_batch(len(indices), size),
        order=lambda epoch: (cut(shuffled(indices, seed, purpose, epoch), size),),
    )


def bad_data(indices: Sequence[np.ndarray], batches: Sequence[Any]) -> str:
    """Which samples of a step's batches are not finite, as the end of a sentence; nothing if all are.

    Args:
        indices: Which training samples each side's batch holds.
        batches: Each side's batch.
    """
    for side, batch in zip(indices, batches, strict=True):
        for part in batch if isinstance(batch, tuple | list) else [batch]:
            if hasattr(part, "isfinite") and part.is_floating_point() and len(part) == len(side):
                wrong = ~part.isfinite().flatten(1).all(1) if part.ndim > 1 else ~part.isfinite()
                if bool(wrong.any()):
                    named = ", ".join(map(str, side[wrong.cpu().numpy()].tolist()))
                    return f": the data hold NaN or infinity in the training samples {named}"
    return ""


def forget_batch_size(split: ForgetSplit, recipe: DescentRecipe) -> int:
    """Forget samples a batch."""
    return recipe.batch_size or default_batch_size(len(split.forget_indices))


def retain_batch_size(split: ForgetSplit, recipe: DescentRecipe) -> int:
    """Retain samples a batch beside forget samples."""
    beside = recipe.retain_batch_size or min(forget_batch_size(split, recipe), len(split.forget_indices))
    return min(beside, len(split.retain_indices))


def plain_batch_size(recipe: DescentRecipe) -> int:
    """Samples a batch of plain training."""
    return recipe.batch_size or 64


def _steps(recipe: DescentRecipe, per_epoch: int) -> int:
    """How many steps a run has."""
    return getattr(recipe, "iterations", None) or per_epoch * recipe.epochs
