"""SSD: selective synaptic dampening, one update from two Fisher diagonals (Foster et al., AAAI 2024)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.geometry import Weights
from gradpivot.methods.method import Method

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["SSD"]


@dataclass(frozen=True, kw_only=True)
class SSD(Method):
    """Selective synaptic dampening: shrink the weights that matter to the forget set alone (Foster et al., 2024).

    With I_f and I_D the Fisher diagonals of the forget set and of all training data, a weight with I_f > α·I_D is
    multiplied by min(λ·I_D/I_f, 1). I_f/I_D is at most N/n_f, so α has to be below that.

    Attributes:
        alpha: Selection threshold α; a smaller one changes more weights.
        dampening: Dampening constant λ; a smaller one shrinks the selected weights more.
        samples: Maximum number of samples of D_f, and of D_r, in the Fisher diagonals.
        batch_size: Batch size of the recorded mean losses; affects memory only.
    """

    name: ClassVar[str] = "ssd"
    title: ClassVar[str] = "SSD"
    knob: ClassVar[str | None] = "alpha"
    one_shot: ClassVar[bool] = True
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "alpha": (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 25.0, 50.0),
        "dampening": (0.1, 1.0),
    }

    alpha: float = 3.0
    dampening: float = 1.0
    samples: int = 1000
    batch_size: int = 256

    def __post_init__(self) -> None:
        self._coerce_scalars()
        self._check("alpha", gt=0)
        self._check("dampening", gt=0)
        for name in ("samples", "batch_size"):
            self._check(name, ge=1, integer=True)

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Dampen the selected weights."""
        from gradpivot.methods.parts.fisher import split_fisher

        gradients = loop.mean_gradients(
            model,
            split,
            self.batch_size,
            forget=partial(task.retain_loss, model),
            retain=partial(task.retain_loss, model),
        )
        forget, retain = split_fisher(model, task, split, loop, self.samples)
        share = len(split.forget_indices) / (len(split.forget_indices) + len(split.retain_indices))
        everything = [share * f + (1 - share) * r for f, r in zip(forget, retain, strict=True)]
        factors = [self.factor(f, d) for f, d in zip(forget, everything, strict=True)]
        if all(bool((factor == 1).all()) for factor in factors):
            loop.note(
                f"no weight changed: none has I_f > {self.alpha:g}·I_D, or λ = {self.dampening:g} shrinks none; use "
                f"an alpha below N/n_f = {1 / share:.3g}, or a smaller dampening"
            )
        trainable = [p for p in model.parameters() if p.requires_grad]
        update = [(factor - 1) * p.detach() for factor, p in zip(factors, trainable, strict=True)]
        # No combination of the two gradients.
        loop.move(update, gradients, Weights(0.0, 0.0))

    def factor(self, forget: Tensor, everything: Tensor) -> Tensor:
        """min(λ·I_D/I_f, 1) where I_f > α·I_D, otherwise 1."""
        import torch

        selected = forget > self.alpha * everything
        return torch.where(selected, self.dampening * everything / forget, 1.0).clamp(max=1.0)

    def gradients(self, split: ForgetSplit) -> float:
        """One gradient per sample of the Fisher diagonals, besides the recorded mean gradients."""
        sizes = len(split.forget_indices), len(split.retain_indices)
        return super().gradients(split) + sum(min(size, self.samples) for size in sizes)
