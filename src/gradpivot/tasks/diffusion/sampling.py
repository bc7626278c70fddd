"""Pictures from a class-conditional diffusion model, by diffusers' schedulers, with classifier-free guidance.

Ancestral sampling is Ho et al. (2020, Algorithm 2), DDIM is Song et al., "Denoising Diffusion Implicit Models" (ICLR
2021) with η = 0. Every picture has a seed of its own, so that it does not depend on which others are drawn with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from gradpivot.errors import GradPivotError
from gradpivot.runtime import derive, evaluating, isolated

if TYPE_CHECKING:
    from gradpivot.tasks.diffusion.denoising import Diffusion

__all__ = ["SAMPLERS", "Sampler", "guided_noise"]

SAMPLERS = ("ddim", "ancestral")


class _Wanted(NamedTuple):
    """The pictures of one batch."""

    labels: Tensor
    seeds: Sequence[int]
    shape: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """How pictures are drawn.

    Attributes:
        kind: ``ddim``, deterministic given the first noise, or ``ancestral``, with new noise in every step.
        steps: Denoising steps, at most the schedule's T.
        guidance: s in ε̂ = (1 + s)·ε_c − s·ε_∅; 0 is the plain conditional model.
        batch_size: Pictures at a time; it changes memory and rounding, nothing else.
    """

    kind: str = "ddim"
    steps: int = 50
    guidance: float = 2.0
    batch_size: int = 128

    def __post_init__(self) -> None:
        if self.kind not in SAMPLERS:
            raise GradPivotError(f"there is no sampler {self.kind!r}; choose {' or '.join(SAMPLERS)}")
        if self.steps < 1 or self.batch_size < 1:
            raise GradPivotError(f"steps is {self.steps} and batch_size is {self.batch_size}; give 1 or more of both")
        if not self.guidance >= 0:
            raise GradPivotError(f"guidance is {self.guidance}; give a number ≥ 0, where 0 means none")

    def draw(
        self,
        model: nn.Module,
        task: Diffusion,
        labels: Sequence[int] | Tensor,
        seeds: Sequence[int],
        shape: tuple[int, int, int] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Tensor:
        """Pictures n×c×h×w with values in [0, 1], on the CPU.

        The same seed gives the same first noise (and the same noise in every ancestral step) whatever the label, the
        batch size and the other pictures: to follow one picture from model to model, keep its seed.

        Args:
            model: In any mode; it is in eval mode meanwhile, and back in its own then.
            task: What it was trained for.
            labels: A class a picture; ``task.no_class`` for none.
            seeds: A whole number a picture.
            shape: c, h and w; what the model's configuration says if not given.
            progress: Called with (denoising steps done, steps in all).

        Raises:
            GradPivotError: if the numbers of labels and seeds differ, or a label is no class.
        """
        shape = shape or _shape_of(model)
        parts = [images for images, _ in self.batches(model, task, labels, seeds, shape, progress)]
        return torch.cat(parts) if parts else torch.empty(0, *shape)

    def batches(
        self,
        model: nn.Module,
        task: Diffusion,
        labels: Sequence[int] | Tensor,
        seeds: Sequence[int],
        shape: tuple[int, int, int] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The same, ``batch_size`` pictures at a time with their labels: memory does not depend on how many there are.

        Args and errors are those of :meth:`draw`.
        """
        wanted = torch.as_tensor(labels, dtype=torch.long).reshape(-1)
        if len(wanted) != len(seeds):
            raise GradPivotError(f"there are {len(wanted)} labels and {len(seeds)} seeds; give one of each a picture")
        if len(wanted) and not 0 <= int(wanted.min()) <= int(wanted.max()) <= task.no_class:
            raise GradPivotError(f"a label is outside 0 … {task.no_class - 1} (and {task.no_class} for no class)")
        shape = shape or _shape_of(model)
        starts = range(0, len(wanted), self.batch_size)
        for number, start in enumerate(starts):
            part = slice(start, start + self.batch_size)
            count = _counted(progress, number * self.steps, len(starts) * self.steps)
            yield self._batch(model, task, _Wanted(wanted[part], seeds[part], shape), count), wanted[part]

    @torch.no_grad()
    def _batch(self, model: nn.Module, task: Diffusion, wanted: _Wanted, count: Callable[[int], None]) -> Tensor:
        """One batch in eval mode; modes and generators come back before anybody else sees them."""
        with evaluating(model), isolated():
            return self._reversed(model, task, wanted, count)

    def _reversed(self, model: nn.Module, task: Diffusion, wanted: _Wanted, count: Callable[[int], None]) -> Tensor:
        """The reverse process of one batch."""
        weight = next(model.parameters())
        labels = wanted.labels.to(weight.device)
        # On the CPU, so that a seed means the same noise on every device.
        generators = [torch.Generator().manual_seed(derive(seed, "picture")) for seed in wanted.seeds]
        images = torch.stack([torch.randn(wanted.shape, generator=g) for g in generators])
        images = images.to(weight.device, weight.dtype)
        scheduler = self._scheduler(task)
        for number, timestep in enumerate(scheduler.timesteps):
            noise = guided_noise(model, images, timestep, labels, task.no_class, self.guidance)
            (images, *_) = scheduler.step(noise, timestep, images, return_dict=False, **self._drawing(generators))
            count(number + 1)
        return (images.float().cpu() / 2 + 0.5).clamp(0, 1)

    def _drawing(self, generators: list[torch.Generator]) -> dict[str, Any]:
        """What a scheduler's step needs to know."""
        if self.kind == "ancestral":
            # diffusers draws each picture's noise from its own generator.
            return {"generator": generators}
        # DDIM with η = 0 draws none. x̂_0 is clipped to [−1, 1], and ε must then be the one that belongs to it
        # (Dhariwal & Nichol, 2021): with guidance the unclipped one draws every class alike.
        return {"use_clipped_model_output": True}

    def _scheduler(self, task: Diffusion) -> Any:
        from diffusers.schedulers.scheduling_ddim import DDIMScheduler
        from diffusers.schedulers.scheduling_ddpm import DDPMScheduler

        if self.steps > task.timesteps:
            raise GradPivotError(
                f"steps is {self.steps}, and the model's schedule has {task.timesteps}; give so many at most"
            )
        schedule = (task.timesteps, task.beta_start, task.beta_end)
        # "trailing" begins at T − 1, where there is nothing but noise (Lin et al., WACV 2024).
        scheduler = (
            DDIMScheduler(*schedule, beta_schedule="linear", timestep_spacing="trailing")
            if self.kind == "ddim"
            else DDPMScheduler(*schedule, beta_schedule="linear")
        )
        scheduler.set_timesteps(self.steps)
        return scheduler


def guided_noise(
    model: nn.Module, images: Tensor, timestep: Tensor, labels: Tensor, no_class: int, guidance: float
) -> Tensor:
    """ε̂ = (1 + s)·ε_c − s·ε_∅ with both predictions from one forward pass over twice the batch.

    The paper's (1 − w)·ε_∅ + w·ε_c with w = 1 + s.
    """
    if guidance == 0:
        return _noise(model(images, timestep, class_labels=labels))
    both = torch.cat([labels, torch.full_like(labels, no_class)])
    conditional, free = _noise(model(torch.cat([images, images]), timestep, class_labels=both)).chunk(2)
    return torch.lerp(free, conditional, 1 + guidance)


def _noise(outputs: Any) -> Tensor:
    found: Tensor = getattr(outputs, "sample", outputs)
    return found


def _shape_of(model: nn.Module) -> tuple[int, int, int]:
    config = getattr(model, "config", None)
    channels, size = getattr(config, "in_channels", None), getattr(config, "sample_size", None)
    if channels is None or size is None:
        raise GradPivotError("the model's configuration does not say how large its images are; give shape=(c, h, w)")
    height, width = (size, size) if isinstance(size, int) else size
    return int(channels), int(height), int(width)


def _counted(progress: Callable[[int, int], None] | None, before: int, total: int) -> Callable[[int], None]:
    return lambda done: progress(before + done, total) if progress else None
