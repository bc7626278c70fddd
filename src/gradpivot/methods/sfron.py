"""SFRon: masked adaptive ascent on the forget set, corrected by retain steps (Huang et al., NeurIPS 2024)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.geometry import Weights
from gradpivot.methods.method import Descent
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["SFRon"]

MIN_LOSS = 1e-12
"""Smallest cross-entropy in the weights 1/CE^λ: one that rounds to zero has no gradient to weight."""


@dataclass(frozen=True, kw_only=True)
class SFRon(Descent):
    """Saliency forgetting in the remain-preserving manifold, fast and slow (Huang et al., 2024).

    Every pair of batches makes two fast steps: ascend Σ CE/sg(CE)^λ on D_f, only in weights with F_f/F_r ≥ the
    threshold, then descend CE on D_r. The slow step moves the weights a fraction of the way to the result.

    Attributes:
        exponent: Exponent λ of the per-sample weights 1/CE^λ, in [0, 1]; 0 is gradient ascent.
        threshold: Minimum ratio of the Fisher diagonals of D_f and D_r for a weight to take forget steps.
        forget_rate: Learning rate of the forget steps, as a multiple of lr.
        outer_rate: Fraction of the way that the slow step takes, in (0, 1].
        samples: Maximum number of samples of D_f, and of D_r, in the Fisher diagonals.
    """

    name: ClassVar[str] = "sfron"
    title: ClassVar[str] = "SFRon"
    knob: ClassVar[str | None] = "forget_rate"
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "lr": (1e-4, 1e-3),
        "forget_rate": (0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 25.0),
    }

    exponent: float = 0.5
    threshold: float = 1.0
    forget_rate: float = 1.0
    outer_rate: float = 1.0
    samples: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("exponent", ge=0, le=1)
        self._check("threshold", ge=0)
        self._check("forget_rate", gt=0)
        self._check("outer_rate", gt=0, le=1)
        self._check("samples", ge=1, integer=True)

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Per pair: a masked forget step, a retain step, and the slow step towards their result."""
        task = Classification.require(task, self.title)
        # Before the first batch, which loads a checkpoint: a resumed run has the same mask.
        mask = self._mask(model, task, split, loop)
        everywhere = [None] * len(mask)
        for batch in loop.paired_batches(model, task, split, self):
            start = [p.detach().clone() for p in _trainable(model)] if self.outer_rate < 1 else []
            loop.restrict(model, mask)
            gradients = loop.gradients(forget=partial(_ascent, task, model, self.exponent, batch.forget))
            loop.step(gradients, Weights(1.0, 0.0), rate=self.forget_rate)
            loop.restrict(model, everywhere)
            gradients = loop.gradients(retain=partial(task.retain_loss, model, batch.retain))
            loop.step(gradients, Weights(0.0, 1.0))
            _move_towards(_trainable(model), start, self.outer_rate)

    def gradients(self, split: ForgetSplit) -> float:
        """One gradient per sample of every batch and of the Fisher diagonals."""
        sizes = len(split.forget_indices), len(split.retain_indices)
        return super().gradients(split) + sum(min(size, self.samples) for size in sizes)

    def _mask(self, model: nn.Module, task: Classification, split: ForgetSplit, loop: Loop) -> list[Tensor]:
        """Where F_f/F_r ≥ threshold; a weight that matters to no sample is outside."""
        from gradpivot.methods.parts.fisher import split_fisher

        forget, retain = split_fisher(model, task, split, loop, self.samples)
        mask = [(f >= self.threshold * r) & (f > 0) for f, r in zip(forget, retain, strict=True)]
        if not any(bool(part.any()) for part in mask):
            loop.note(f"no weight has F_f/F_r ≥ {self.threshold:g}, so nothing was forgotten; use a smaller threshold")
        return mask


def _ascent(task: Classification, model: nn.Module, exponent: float, batch: Any) -> Tensor:
    """Mean −CE/sg(CE)^λ."""
    from torch.nn.functional import cross_entropy

    logits, targets = task.logits(model, batch)
    # float64: in float32 the CE of a confident sample rounds to zero.
    losses = cross_entropy(logits.double(), targets, reduction="none")
    return -(losses * sample_weights(losses, exponent)).mean()


def sample_weights(losses: Tensor, exponent: float) -> Tensor:
    """1/CE^λ per sample, without a gradient."""
    return losses.detach().clamp(min=MIN_LOSS) ** -exponent


def _trainable(model: nn.Module) -> list[Tensor]:
    return [p for p in model.parameters() if p.requires_grad]


def _move_towards(weights: Sequence[Tensor], start: Sequence[Tensor], rate: float) -> None:
    """The slow step: start + rate·(weights − start)."""
    import torch

    if rate == 1:
        return
    with torch.no_grad():
        for weight, before in zip(weights, start, strict=True):
            weight.copy_(torch.lerp(before, weight, rate))
