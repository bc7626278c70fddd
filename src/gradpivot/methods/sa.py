"""SA: Selective Amnesia, continual learning in reverse, for diffusion models (Heng & Soh, NeurIPS 2023)."""

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
    """Selective Amnesia for diffusion models: generative replay with an EWC penalty (Heng & Soh, 2023).

    The loss is L_f + L_r + w·Σ F_i·(θ_i − θ*_i)². L_f is the denoising loss on uniform noise images under the forgotten
    label, L_r the denoising loss on the original model's samples of the other labels, and F the diagonal Fisher
    information of the original model on its samples of all labels. No training data are used.

    Attributes:
        penalty: Weight w of the EWC penalty, for losses summed over pixels as in the literature.
        samples: Generated samples per class, for replay and the Fisher information.
        sampler: Sampler for the replay data.
        sampler_steps: Denoising steps per sample.
        guidance: Classifier-free guidance scale s in (1 + s)·ε_c − s·ε_∅.
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
        self._check("penalty", ge=0)
        self._check("samples", ge=1, integer=True)
        self._check("sampler_steps", ge=1, integer=True)
        self._check("guidance", ge=0)

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Sample from the original, compute its Fisher information, then train. A resumed run repeats the first two."""
        from gradpivot.methods.parts.fisher import diagonal_fisher
        from gradpivot.runtime import derive, reseed
        from gradpivot.tasks import Diffusion

        diffusion = Diffusion.require(task, self.title)
        replayed = self._replay_split(model, diffusion, split, loop)
        # Generated samples are plain (image, label) pairs.
        diffusion = replace(diffusion, adapter=input_and_target)
        singles = loop.eval_batches(model, replayed.train, np.arange(len(replayed.train)), 1)
        reseed(derive(loop.seed, "fisher"))
        information = diagonal_fisher(model, diffusion.retain_loss, (one for _, one in singles))
        start = [p.detach().clone() for p in model.parameters() if p.requires_grad]
        # Our losses are means over d pixels: F of summed losses is d² times larger, and the losses are d times larger.
        weight = self.penalty * replayed.train[0][0].numel()
        noise = objective("noise_image")
        for batch in loop.paired_batches(model, diffusion, replayed, self):
            gradients = loop.gradients(
                forget=partial(diffusion.forget_loss, model, batch.forget, noise),
                retain=partial(_penalised_loss, model, diffusion, batch.retain, weight, information, start),
            )
            loop.step(gradients, Weights(1.0, 1.0))

    def gradients(self, split: ForgetSplit) -> float:
        """Gradients on replayed samples; sampling and the Fisher information are not counted."""
        from gradpivot.data import batch_count, default_batch_size

        replayed = self.samples * max(len(split.classes), 1)
        size = min(self.batch_size or default_batch_size(replayed), replayed)
        steps = self.iterations or self.epochs * batch_count(replayed, size)
        return 2.0 * size * steps

    def _replay_split(self, model: nn.Module, task: Diffusion, split: ForgetSplit, loop: Loop) -> ForgetSplit:
        """A split of samples drawn from the original model."""
        import torch
        from torch.utils.data import TensorDataset

        from gradpivot.data import ForgetSplit
        from gradpivot.runtime import derive
        from gradpivot.tasks import Sampler

        if split.kind != "class":
            raise GradPivotError(
                f"{self.title} forgets whole classes, but the split is {split.kind!r}; use ForgetSplit.by_class"
            )
        sampler = Sampler(kind=self.sampler, steps=self.sampler_steps, guidance=self.guidance)
        labels = torch.arange(task.classes).repeat_interleave(self.samples)
        seeds = [derive(loop.seed, "replay", number) for number in range(len(labels))]
        shape = tuple(task.adapter(split.train[0])[0].shape)
        images = sampler.draw(model, task, labels, seeds, shape)
        if not bool(images.isfinite().all()):
            raise GradPivotError("the original model draws NaN or infinite samples; check its weights")
        data = TensorDataset(images, labels)
        return ForgetSplit.by_class(data, split.test, split.classes, data_id="replay")


def _penalised_loss(
    model: nn.Module, task: Diffusion, batch: Any, weight: float, information: Sequence[Tensor], start: Sequence[Tensor]
) -> Tensor:
    """L_r + weight·Σ F_i·(θ_i − θ*_i)²."""
    loss = task.retain_loss(model, batch)
    now = [p for p in model.parameters() if p.requires_grad]
    for f, p, s in zip(information, now, start, strict=True):
        loss = loss + weight * (f * (p - s).square()).sum()
    return loss
