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
        loss: (logits n×k, targets n) → the mean loss; for noise predictions (both n×c×h×w) likewise.
        lower_bound: Its infimum, or None if it is unbounded below and descent never ends.
        of_losses: The same for a task without labels to predict: (n losses, the loss of knowing nothing) → the mean;
            None if it is defined by labels.
        takes: What outputs it is a function of, ``logits`` or ``noise``.
        gives_back: Whether climbing it brings back what was forgotten; away from another class's prediction leads
            anywhere.
    """

    name: str
    loss: Callable[[Tensor, Tensor], Tensor]
    lower_bound: float | None
    of_losses: Callable[[Tensor, float], Tensor] | None = None
    takes: str = "logits"
    gives_back: bool = True

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a batch."""
        return self.loss(logits, targets)

    def of(self, losses: Tensor, ignorance: float) -> Tensor:
        """The mean over samples that have remaining losses (−ELBO, MSE) in the place of logits and a label.

        Args:
            losses: One for each sample.
            ignorance: The loss of a model that knows nothing of the samples.

        Raises:
            GradPivotError: if it is defined for labels only.
        """
        if self.of_losses is None:
            usable = " or ".join(o.name for o in _OBJECTIVES.values() if o.of_losses)
            raise GradPivotError(
                f"the objective {self.name} is a function of class probabilities, and this task has losses only; "
                f"use objective {usable}"
            )
        return self.of_losses(losses, ignorance)


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


def _negative_loss(losses: Tensor, ignorance: float) -> Tensor:
    """−loss: the paper's forgetting loss of every task, −ELBO and −MSE. Unbounded below."""
    return -losses.mean()


def _hinge(logits: Tensor, targets: Tensor) -> Tensor:
    """max(0, log k − CE): forget down to a guess among k classes, p_y = 1/k, and no further."""
    from torch.nn.functional import cross_entropy

    return _hinge_of_losses(cross_entropy(logits, targets, reduction="none"), math.log(logits.shape[1]))


def _hinge_of_losses(losses: Tensor, ignorance: float) -> Tensor:
    """max(0, ignorance − loss): a sample that the model knows nothing of pulls no more.

    Its gradient is then zero, and not only small: the pivot takes directions, so a gradient that fades goes on pulling
    at full length.
    """
    return (ignorance - losses).clamp(min=0).mean()


def _random_label(logits: Tensor, targets: Tensor) -> Tensor:
    """CE(x, ỹ) with ỹ uniform over all k classes, the true one included (Golatkar et al., 2020; Graves et al., 2021).

    The labels are drawn anew at each call from torch's generator. The Loop seeds that for every step, and a sample is
    visited once an epoch: it has a new label in each epoch, and a resumed run draws the same ones. Several processes
    draw for the whole batch, and each takes the labels of its part.
    """
    from torch.nn.functional import cross_entropy

    from gradpivot.runtime import draw_labels

    return cross_entropy(logits, draw_labels(logits.shape[1], len(targets), logits.device))


def _squared_error(predicted: Tensor, target: Tensor) -> Tensor:
    """MSE to whatever stands for "forgotten": the task gives the target."""
    from torch.nn.functional import mse_loss

    return mse_loss(predicted, target)


def _negative_squared_error(predicted: Tensor, target: Tensor) -> Tensor:
    """−MSE: the paper's forgetting loss of diffusion. Unbounded below."""
    return -_squared_error(predicted, target)


_OBJECTIVES = {
    o.name: o
    for o in (
        Objective("unlikelihood", _unlikelihood, 0.0),
        Objective("negative_ce", _negative_ce, None, _negative_loss),
        Objective("random_label", _random_label, 0.0),
        Objective("uniform", _uniform, 0.0),
        Objective("npo", _npo, 0.0),
        Objective("hinge", _hinge, 0.0, _hinge_of_losses),
        # Of diffusion; gradpivot.tasks.diffusion.denoising says what each one's target is.
        Objective("other_class", _squared_error, 0.0, takes="noise", gives_back=False),
        Objective("no_class", _squared_error, 0.0, takes="noise", gives_back=False),
        Objective("noise_image", _squared_error, 0.0, takes="noise", gives_back=False),
        Objective("negative_mse", _negative_squared_error, None, takes="noise"),
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
        raise GradPivotError(f"there is no objective {name!r}; choose one of {', '.join(_OBJECTIVES)}") from None


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
