"""Forgetting objectives: functions of outputs and targets, lower = more forgotten. They know no model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Objective", "list_objectives", "objective", "register_objective"]


@dataclass(frozen=True)
class Objective:
    """A forgetting loss.

    Attributes:
        name: How methods and the command line refer to it.
        loss: (logits n×k, targets n) → the mean loss.
        lower_bound: Its infimum, or None if it is unbounded below and descent never ends.
    """

    name: str
    loss: Callable[[Tensor, Tensor], Tensor]
    lower_bound: float | None

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a batch."""
        return self.loss(logits, targets)


def _negative_ce(logits: Tensor, targets: Tensor) -> Tensor:
    """−CE(x, y) = log p_y: the paper's forgetting loss. Unbounded below."""
    from torch.nn.functional import cross_entropy

    return -cross_entropy(logits, targets)


def _unlikelihood(logits: Tensor, targets: Tensor) -> Tensor:
    """−log(1 − p_y) ≥ 0 (Welleck et al., 2020, "Neural Text Generation with Unlikelihood Training").

    Computed as logsumexp(z) − logsumexp(z without z_y), which is exact where p_y rounds to 1.
    """
    others = logits.scatter(1, targets[:, None], float("-inf"))
    return (logits.logsumexp(1) - others.logsumexp(1)).mean()


def _uniform(logits: Tensor, targets: Tensor) -> Tensor:
    """KL(uniform ‖ p) ≥ 0: the forgotten sample should look like any class (after Chundawat et al., 2023).

    The mean over the k classes of −log p_c, minus log k.
    """
    log_p = logits.log_softmax(1)
    return -log_p.mean() - math.log(logits.shape[1])


def _npo(logits: Tensor, targets: Tensor) -> Tensor:
    """2 log(1 + p_y) ≥ 0: negative preference optimisation (Zhang et al., 2024, arXiv:2404.05868) with β = 1.

    Theirs is (2/β) log(1 + (p_y/p_ref)^β) with the original model's p_ref, which a trained classifier has at 1 on what
    it was trained on. As −CE, its gradient vanishes where p_y is 1 and, unlike −CE, also where p_y is 0.
    """
    p = logits.log_softmax(1).gather(1, targets[:, None]).exp()
    return 2 * p.log1p().mean()


def _random_label(logits: Tensor, targets: Tensor) -> Tensor:
    """CE(x, ỹ) with ỹ uniform over all k classes, the true one included (Golatkar et al., 2020; Graves et al., 2021).

    The labels are drawn anew at each call from torch's generator. The Loop seeds that for every step, and a sample is
    visited once an epoch: it has a new label in each epoch, and a resumed run draws the same ones. Several processes
    draw for the whole batch, and each takes the labels of its part.
    """
    from torch.nn.functional import cross_entropy

    from gradpivot.randomness import draw_labels

    return cross_entropy(logits, draw_labels(logits.shape[1], len(targets), logits.device))


_OBJECTIVES = {
    o.name: o
    for o in (
        Objective("unlikelihood", _unlikelihood, 0.0),
        Objective("negative_ce", _negative_ce, None),
        Objective("random_label", _random_label, 0.0),
        Objective("uniform", _uniform, 0.0),
        Objective("npo", _npo, 0.0),
    )
}


def objective(name: str) -> Objective:
    """The objective of that name.

    Raises:
        GradPivotError: with the names there are.
    """
    try:
        return _OBJECTIVES[name]
    except KeyError:
        raise GradPivotError(
            f"there is no objective {name!r}; choose one of {', '.join(_OBJECTIVES)}"
        ) from None


def register_objective(new: Objective) -> Objective:
    """Make an objective of your own known by its name, to methods and to the command line.

    Raises:
        GradPivotError: if the name is taken.
    """
    if new.name in _OBJECTIVES:
        raise GradPivotError(f"there is an objective {new.name!r} already; choose another name")
    _OBJECTIVES[new.name] = new
    return new


def list_objectives() -> list[str]:
    """The names of all objectives."""
    return list(_OBJECTIVES)
