"""Forgetting objectives: functions of outputs and targets; lower means more forgotten."""

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
        name: Name for methods and the command line.
        loss: Maps logits (n×k) and targets (n), or two noise predictions (n×c×h×w), to the mean loss.
        lower_bound: Infimum, or None if unbounded below.
        of_losses: Variant for tasks without labels: maps n losses and the loss of an uninformed model to the mean. None
            if undefined.
        takes: Model outputs it applies to, ``logits`` or ``noise``.
        reversible: Whether ascending it restores what was forgotten. Not so if the target is another class's
            prediction.
    """

    name: str
    loss: Callable[[Tensor, Tensor], Tensor]
    lower_bound: float | None
    of_losses: Callable[[Tensor, float], Tensor] | None = None
    takes: str = "logits"
    reversible: bool = True

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of a batch."""
        return self.loss(logits, targets)

    def of(self, losses: Tensor, ignorance: float) -> Tensor:
        """Mean loss for a task with per-sample losses (−ELBO, MSE) instead of logits and labels.

        Args:
            losses: One loss per sample.
            ignorance: Loss of an uninformed model.

        Raises:
            GradPivotError: If the objective needs labels.
        """
        if self.of_losses is None:
            usable = " or ".join(o.name for o in _OBJECTIVES.values() if o.of_losses)
            raise GradPivotError(
                f"the objective {self.name} needs class probabilities, which this task does not have; use {usable}"
            )
        return self.of_losses(losses, ignorance)


def _negative_ce(logits: Tensor, targets: Tensor) -> Tensor:
    """−CE(x, y) = log p_y, the paper's forgetting loss. Unbounded below."""
    from torch.nn.functional import cross_entropy

    return -cross_entropy(logits, targets)


def _unlikelihood(logits: Tensor, targets: Tensor) -> Tensor:
    """−log(1 − p_y) ≥ 0 (Welleck et al., 2020, "Neural Text Generation with Unlikelihood Training").

    Computed as CE(z, m) − CE(z without z_y, m) with the likeliest other class m, which stays exact where p_y rounds to
    1. z_m cancels; fused cross-entropies are faster than two logsumexp.
    """
    from torch.nn.functional import cross_entropy

    others = logits.scatter(1, targets[:, None], float("-inf"))
    likeliest = others.argmax(1)
    return cross_entropy(logits, likeliest) - cross_entropy(others, likeliest)


def _uniform(logits: Tensor, targets: Tensor) -> Tensor:
    """KL(uniform ‖ p) ≥ 0 (after Chundawat et al., 2023).

    The mean of −log p_c over the k classes, minus log k.
    """
    log_p = logits.log_softmax(1)
    return -log_p.mean() - math.log(logits.shape[1])


def _npo(logits: Tensor, targets: Tensor) -> Tensor:
    """2 log(1 + p_y) ≥ 0: negative preference optimisation (Zhang et al., 2024, arXiv:2404.05868) with β = 1.

    The original is (2/β) log(1 + (p_y/p_ref)^β); a trained classifier has p_ref ≈ 1 on its training data. As for −CE,
    the gradient vanishes at p_y = 1 and, unlike for −CE, also at p_y = 0.
    """
    p = logits.log_softmax(1).gather(1, targets[:, None]).exp()
    return 2 * p.log1p().mean()


def _negative_loss(losses: Tensor, ignorance: float) -> Tensor:
    """−loss, the paper's forgetting loss for −ELBO and MSE. Unbounded below."""
    return -losses.mean()


def _hinge(logits: Tensor, targets: Tensor) -> Tensor:
    """max(0, log k − CE): stops at a uniform guess, p_y = 1/k."""
    from torch.nn.functional import cross_entropy

    return _hinge_of_losses(cross_entropy(logits, targets, reduction="none"), math.log(logits.shape[1]))


def _hinge_of_losses(losses: Tensor, ignorance: float) -> Tensor:
    """max(0, ignorance − loss): no gradient for samples that are already forgotten.

    The gradient is exactly zero there. A small one would not do, because the pivot normalises gradients.
    """
    return (ignorance - losses).clamp(min=0).mean()


def _random_label(logits: Tensor, targets: Tensor) -> Tensor:
    """CE(x, ỹ) with ỹ uniform over all k classes, the true one included (Golatkar et al., 2020; Graves et al., 2021).

    Every call draws new labels from torch's generator, which the Loop seeds at every step: a sample gets a new label in
    each epoch, and a resumed run draws the same ones. Processes draw for the whole batch and use their part.
    """
    from torch.nn.functional import cross_entropy

    from gradpivot.runtime import draw_labels

    return cross_entropy(logits, draw_labels(logits.shape[1], len(targets), logits.device))


def _squared_error(predicted: Tensor, target: Tensor) -> Tensor:
    """MSE to a target that the task defines."""
    from torch.nn.functional import mse_loss

    return mse_loss(predicted, target)


def _negative_squared_error(predicted: Tensor, target: Tensor) -> Tensor:
    """−MSE, the paper's forgetting loss for diffusion. Unbounded below."""
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
        # For diffusion; gradpivot.tasks.diffusion.denoising defines their targets.
        Objective("other_class", _squared_error, 0.0, takes="noise", reversible=False),
        Objective("no_class", _squared_error, 0.0, takes="noise", reversible=False),
        Objective("noise_image", _squared_error, 0.0, takes="noise", reversible=False),
        Objective("negative_mse", _negative_squared_error, None, takes="noise"),
    )
}


def objective(name: str) -> Objective:
    """Look up an objective by name.

    Raises:
        GradPivotError: For an unknown name; lists the known ones.
    """
    try:
        return _OBJECTIVES[name]
    except KeyError:
        raise GradPivotError(f"unknown objective {name!r}; choose one of {', '.join(_OBJECTIVES)}") from None


def register_objective(new: Objective) -> Objective:
    """Register your own objective for methods and the command line.

    Raises:
        GradPivotError: If the name is taken.
    """
    if new.name in _OBJECTIVES:
        raise GradPivotError(f"the objective {new.name!r} already exists; choose another name")
    _OBJECTIVES[new.name] = new
    return new


def list_objectives() -> list[str]:
    """Names of all objectives."""
    return list(_OBJECTIVES)
