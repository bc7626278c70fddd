"""Sampling from a class-conditional diffusion model with classifier-free guidance, by diffusers' schedulers.

Ancestral sampling is Ho et al. (2020, Algorithm 2), DDIM is Song et al., "Denoising Diffusion Implicit Models" (ICLR
2021) with η = 0. Every image has its own seed, so that it does not depend on the rest of the batch.
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
    """The images to draw in one batch."""

    labels: Tensor
    seeds: Sequence[int]
    shape: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Draws images from a diffusion model.

    Attributes:
        kind: ``ddim`` (deterministic given the initial noise) or ``ancestral`` (new noise at every step).
        steps: Denoising steps, at most the schedule's T.
        guidance: Guidance scale s in (1 + s)·ε_c − s·ε_∅; 0 disables guidance.
        batch_size: Batch size; affects memory and rounding only.
    """

    kind: str = "ddim"
    steps: int = 50
    guidance: float = 2.0
    batch_size: int = 128

    def __post_init__(self) -> None:
        if self.kind not in SAMPLERS:
            raise GradPivotError(f"unknown sampler {self.kind!r}; choose {' or '.join(SAMPLERS)}")
        if self.steps < 1 or self.batch_size < 1:
            raise GradPivotError(f"steps is {self.steps} and batch_size is {self.batch_size}; both must be ≥ 1")
        if not self.guidance >= 0:
            raise GradPivotError(f"guidance is {self.guidance}; it must be ≥ 0, where 0 disables it")

    def draw(
        self,
        model: nn.Module,
        task: Diffusion,
        labels: Sequence[int] | Tensor,
        seeds: Sequence[int],
        shape: tuple[int, int, int] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Tensor:
        """Draw images n×c×h×w in [0, 1], on the CPU.

        A seed fixes the noise for any label and batch: to compare an image between models, use the same seed.

        Args:
            model: The model; runs in eval mode, and its mode is restored.
            task: The task it was trained for.
            labels: One class per image; ``task.no_class`` for none.
            seeds: One integer per image.
            shape: (c, h, w). Default: from the model's configuration.
            progress: Called with (denoising steps done, total steps).

        Raises:
            GradPivotError: If the numbers of labels and seeds differ, or a label is out of range.
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
        """Yield (images, labels) in batches, so that memory does not depend on the number of images.

        Arguments and errors are those of :meth:`draw`.
        """
        wanted = torch.as_tensor(labels, dtype=torch.long).reshape(-1)
        if len(wanted) != len(seeds):
            raise GradPivotError(f"there are {len(wanted)} labels and {len(seeds)} seeds; pass one of each per image")
        if len(wanted) and not 0 <= int(wanted.min()) <= int(wanted.max()) <= task.no_class:
            raise GradPivotError(f"a label is outside 0 … {task.no_class - 1} (or {task.no_class} for no class)")
        shape = shape or _shape_of(model)
        starts = range(0, len(wanted), self.batch_size)
        for number, start in enumerate(starts):
            part = slice(start, start + self.batch_size)
            count = _counted(progress, number * self.steps, len(starts) * self.steps)
            yield self._batch(model, task, _Wanted(wanted[part], seeds[part], shape), count), wanted[part]

    @torch.no_grad()
    def _batch(self, model: nn.Module, task: Diffusion, wanted: _Wanted, count: Callable[[int], None]) -> Tensor:
        """Draw one batch in eval mode, restoring modes and random state."""
        with evaluating(model), isolated():
            return self._reversed(model, task, wanted, count)

    def _reversed(self, model: nn.Module, task: Diffusion, wanted: _Wanted, count: Callable[[int], None]) -> Tensor:
        """The reverse process of one batch."""
        weight = next(model.parameters())
        labels = wanted.labels.to(weight.device)
        # On the CPU, so that a seed gives the same noise on every device.
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
        """Extra arguments of the scheduler's step."""
        if self.kind == "ancestral":
            # diffusers draws each image's noise from its own generator.
            return {"generator": generators}
        # DDIM with η = 0 draws no noise. x̂_0 is clipped to [−1, 1], so ε must be recomputed from it (Dhariwal & Nichol,
        # 2021): with guidance the original ε makes all classes look alike.
        return {"use_clipped_model_output": True}

    def _scheduler(self, task: Diffusion) -> Any:
        from diffusers.schedulers.scheduling_ddim import DDIMScheduler
        from diffusers.schedulers.scheduling_ddpm import DDPMScheduler

        if self.steps > task.timesteps:
            raise GradPivotError(
                f"steps is {self.steps}; it must be at most {task.timesteps}, the timesteps of the schedule"
            )
        schedule = (task.timesteps, task.beta_start, task.beta_end)
        # "trailing" starts at T − 1, which is pure noise (Lin et al., WACV 2024).
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
    """ε̂ = (1 + s)·ε_c − s·ε_∅ with both predictions from one forward pass.

    Equals the paper's (1 − w)·ε_∅ + w·ε_c with w = 1 + s.
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
        raise GradPivotError("the model's configuration has no image size; pass shape=(c, h, w)")
    height, width = (size, size) if isinstance(size, int) else size
    return int(channels), int(height), int(width)


def _counted(progress: Callable[[int, int], None] | None, before: int, total: int) -> Callable[[int], None]:
    return lambda done: progress(before + done, total) if progress else None
