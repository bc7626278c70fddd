"""RA, UA, TA and MIA of a model: one forward pass over each set serves them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from gradpivot.data.loader import Loader
from gradpivot.data.order import cut, shuffled
from gradpivot.errors import NonFiniteError
from gradpivot.evaluate.membership import membership_attack
from gradpivot.evaluate.scores import Scores
from gradpivot.parallel import Replicas
from gradpivot.randomness import derive, isolated

if TYPE_CHECKING:
    from gradpivot.data.split import ForgetSplit
    from gradpivot.tasks.task import Task

__all__ = ["evaluate", "predictions", "scored_part"]

_BATCH = 512


class SetPredictions(NamedTuple):
    """Per-sample results over one set."""

    confidence: np.ndarray
    correct: np.ndarray


def evaluate(
    model: nn.Module,
    split: ForgetSplit,
    task: Task,
    *,
    workers: int = 0,
    members_seed: int = 0,
    retain_scored: int | None = None,
    replicas: Replicas | None = None,
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

    Returns:
        The scores. Members are as many retain samples as there are test samples in scope (fewer of both if
        the retain set is smaller), drawn from those that the retain pass has scored anyway.

    Raises:
        NonFiniteError: if the model's outputs are not finite.
    """
    training = [module.training for module in model.modules()]
    shared: dict[str, Any] = {"workers": workers, "replicas": replicas}
    model.eval()
    try:
        forget = predictions(model, split.train, split.forget_indices, task, **shared)
        kept = scored_part(split.retain_indices, retain_scored)
        retain = predictions(model, split.train, kept, task, **shared)
        test = predictions(model, split.test, split.test_indices, task, **shared)
    finally:
        for module, mode in zip(model.modules(), training, strict=True):
            module.training = mode
    balanced = min(len(retain.confidence), len(test.confidence))
    # scikit-learn draws from NumPy's global generator, and its first import from Python's.
    with isolated(derive(members_seed, "membership")):
        membership = membership_attack(
            members=shuffled(retain.confidence, members_seed, "members")[:balanced],
            nonmembers=shuffled(test.confidence, members_seed, "nonmembers")[:balanced],
            forget=forget.confidence,
        )
    return Scores(
        ra=float(retain.correct.mean()),
        ua=float(1 - forget.correct.mean()),
        ta=float(test.correct.mean()),
        mia=membership.threshold,
        mia_svc=membership.svc,
        mia_svc_accuracy=membership.svc_accuracy,
        mia_svc_determined=membership.svc_determined,
        n_forget=len(forget.correct),
        n_retain=len(retain.correct),
        n_test=len(test.correct),
    )


def scored_part(indices: np.ndarray, count: int | None) -> np.ndarray:
    """A fixed random part of the retain set, in order; all of it if ``count`` is None or as large."""
    if count is None or count >= len(indices):
        return indices
    return np.sort(shuffled(indices, 0, "scored")[:count])


@torch.no_grad()
def predictions(
    model: nn.Module,
    dataset: Any,
    indices: np.ndarray,
    task: Task,
    *,
    workers: int = 0,
    replicas: Replicas | None = None,
) -> SetPredictions:
    """True-label confidence and correctness of some samples, in the order of ``indices``.

    Of several processes each takes some of the same batches that one would make, so the numbers do not change.
    """
    replicas = replicas or Replicas.current()
    device = next(model.parameters()).device
    loader = Loader(dataset, device, seed=0, workers=workers)
    confidence, correct = [], []
    with isolated(derive(0, "evaluate")):
        order = cut(indices, _BATCH)
        for batch in loader.batches(order[slice(*replicas.part(len(order))[:2])], epoch=-1):
            told = task.predict(model, batch)
            confidence.append(told.confidence.cpu().numpy())
            correct.append(told.correct.cpu().numpy())
    sides = zip(*replicas.gather((confidence, correct)), strict=True)
    joined = SetPredictions(*(np.concatenate([batch for own in side for batch in own]) for side in sides))
    if not np.isfinite(joined.confidence).all():
        raise NonFiniteError(
            "the model's outputs are not finite; its weights hold NaN or infinity, or its inputs do"
        )
    return joined
