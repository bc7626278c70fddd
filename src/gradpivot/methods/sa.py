"""SA: Selective Amnesia (Heng & Soh, NeurIPS 2023): forgetting as continual learning, for diffusion models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gradpivot.errors import GradPivotError
from gradpivot.geometry import Weights
from gradpivot.methods.method import Descent
from gradpivot.tasks import input_and_target, objective

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Diffusion, Task

__all__ = ["SA"]


@dataclass(frozen=True, kw_only=True)
class SA(Descent):
    """Teaches the forgotten label noise, replays its own samples of the others, and holds the weights that matter.

    Descends L_f + L_r + w·Σ F_i·(θ_i − θ*_i)²: L_f is the noise-prediction loss of uniform noise images under the
    forgotten label, L_r that of samples the original drew for the other labels, F the diagonal Fisher information of
    the original at its samples of all labels. No training image is looked at, but for the shape of one.

    Attributes:
        penalty: w, as in the literature, whose losses are sums over pixels.
        samples: How many the original draws of each class, for replay and Fisher information.
        sampler: ``ddim`` or ``ancestral``.
        sampler_steps: Denoising steps of a sample.
        guidance: s of ε̂ = (1 + s)·ε_c − s·ε_∅ for the samples.
    """

    name: ClassVar[str] = "sa"
    title: ClassVar[str] = "SA"
    knob: ClassVar[str | None] = "penalty"
    needs_retain: ClassVar[bool] = False
    needs_forget: ClassVar[bool] = False
    only_for: ClassVar[str | None] = "diffusion"
    paper: ClassVar[Mapping[str, Any]] = {
        **Descent.paper, "lr": 1e-2, "optimizer": "sgd", "iterations": 15_000, "batch_size": 128, "samples": 1000,
    }  # fmt: skip
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "penalty": (1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 5.0)
    }

    lr: float = 1e-4
    optimizer: Literal["sgd", "adam", "adamw"] = "adam"
    penalty: float = 0.1
    samples: int = 100
    sampler: Literal["ddim", "ancestral"] = "ddim"
    sampler_steps: int = 50
    guidance: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("penalty", least=0)
        self._check("samples", least=1, whole=True)
        self._check("sampler_steps", least=1, whole=True)
        self._check("guidance", least=0)

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Samples and Fisher information of the original, which a resumed run makes again; then the descent."""
        from gradpivot.methods.parts.fisher import diagonal_fisher
        from gradpivot.runtime import derive, reseed
        from gradpivot.tasks import Diffusion

        diffusion = Diffusion.required(task, self.title)
        replayed = self._drawn(model, diffusion, split, loop)
        # Samples are plain pairs, whatever the data were.
        diffusion = replace(diffusion, adapter=input_and_target)
        singles = loop.pass_over(model, replayed.train, np.arange(len(replayed.train)), 1)
        reseed(derive(loop.seed, "fisher"))
        information = diagonal_fisher(model, diffusion.retain_loss, (one for _, one in singles))
        start = [p.detach().clone() for p in model.parameters() if p.requires_grad]
        # Per pixel, as the other losses are; F of losses summed over d pixels is d² times that of means.
        weight = self.penalty * replayed.train[0][0].numel()
        noise = objective("noise_image")
        for batch in loop.paired_batches(model, diffusion, replayed, self):
            gradients = loop.gradients(
                forget=partial(diffusion.forget_loss, model, batch.forget, noise),
                retain=partial(_held_loss, model, diffusion, batch.retain, weight, information, start),
            )
            loop.step(gradients, Weights(1.0, 1.0))

    def gradients(self, split: ForgetSplit) -> float:
        """Of the descent on replayed samples; drawing them and their Fisher information are not counted."""
        from gradpivot.data import batch_count, default_batch_size

        replayed = self.samples * max(len(split.classes), 1)
        size = min(self.batch_size or default_batch_size(replayed), replayed)
        steps = self.iterations or self.epochs * batch_count(replayed, size)
        return 2.0 * size * steps

    def _drawn(self, model: nn.Module, task: Diffusion, split: ForgetSplit, loop: Loop) -> ForgetSplit:
        """The original's samples in the place of the data."""
        import torch
        from torch.utils.data import TensorDataset

        from gradpivot.data import ForgetSplit
        from gradpivot.runtime import derive
        from gradpivot.tasks import Sampler

        if split.kind != "class":
            raise GradPivotError(f"{self.title} forgets classes by their label, and the split is {split.kind!r}")
        sampler = Sampler(kind=self.sampler, steps=self.sampler_steps, guidance=self.guidance)
        labels = torch.arange(task.classes).repeat_interleave(self.samples)
        seeds = [derive(loop.seed, "replay", number) for number in range(len(labels))]
        shape = tuple(task.adapter(split.train[0])[0].shape)
        images = sampler.draw(model, task, labels, seeds, shape)
        if not bool(images.isfinite().all()):
            raise GradPivotError("the original's samples are not finite; train it, or load sound weights")
        data = TensorDataset(images, labels)
        return ForgetSplit.by_class(data, split.test, split.classes, data_id="replay")


def _held_loss(
    model: nn.Module, task: Diffusion, batch: Any, weight: float, information: Sequence[Tensor], start: Sequence[Tensor]
) -> Tensor:
    """L_r + weight·Σ F_i·(θ_i − θ*_i)²."""
    loss = task.retain_loss(model, batch)
    now = [p for p in model.parameters() if p.requires_grad]
    for f, p, s in zip(information, now, start, strict=True):
        loss = loss + weight * (f * (p - s).square()).sum()
    return loss
