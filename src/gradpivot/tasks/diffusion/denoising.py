"""Class-conditional diffusion: the denoising loss to retain, a forgetting objective on the noise prediction to forget.

Ho et al., "Denoising Diffusion Probabilistic Models" (NeurIPS 2020); Ho & Salimans, "Classifier-Free Diffusion
Guidance" (2021); Fan et al., "SalUn" (ICLR 2024); Heng & Soh, "Selective Amnesia" (NeurIPS 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from gradpivot.errors import GradPivotError, install_command
from gradpivot.tasks.batch import Adapter, input_and_target
from gradpivot.tasks.objectives import objective as objective_named
from gradpivot.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.tasks.diffusion.anchored import AnchoredDiffusion
    from gradpivot.tasks.objectives import Objective

__all__ = ["Diffusion", "Noisy"]

COUNTERPARTS = {"unlikelihood": "other_class", "negative_ce": "negative_mse", "random_label": "other_class"}
"""Diffusion equivalents of the classification objectives, which are the defaults of methods."""


class Noisy(NamedTuple):
    """A noised batch."""

    images: Tensor
    """x_t = √ᾱ_t·x_0 + √(1 − ᾱ_t)·ε, n×c×h×w."""
    timesteps: Tensor
    """Timesteps t in 0 … T − 1, shape n."""
    noise: Tensor
    """ε ~ N(0, 1)."""


@dataclass(frozen=True)
class Diffusion(Task):
    """A model ε_θ(x_t, t, c) with the call signature of diffusers' UNet2DModel.

    It is called as ``model(images, timesteps, class_labels=labels)``. Labels are 0 … classes − 1; ``classes`` stands
    for *no class*. All random numbers are drawn per sample before the forward pass
    (:func:`gradpivot.runtime.randomness.draw_rows`), so that resumed and multi-process runs draw the same ones.

    Attributes:
        classes: Number of classes.
        label_dropout: Fraction of labels that :meth:`retain_loss` replaces by *no class* in train mode, and under the
            dial always.
        timesteps: Number T of diffusion timesteps.
        beta_start: First β of the linear schedule.
        beta_end: Last β of the linear schedule.
        loss_unit: Change of a distance between predictions equivalent to one nat of a classifier: about the distance
            between the predictions for two classes.
        retain_budget: Rise of L_r that a whole run under the dial may cause, a mean squared distance per pixel from the
            original's predictions.
        forgets: The weights that a run under the dial changes: ``label``, the forgotten classes' rows of
            ``model.class_embedding`` (an ``nn.Embedding``), or ``model``, all weights. Records always change all.
        adapter: Maps a sample or batch to (image, label). Images are uint8, or floating-point in [0, 1]; the model gets
            them in [−1, 1].
    """

    predicts: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ("diffusers",)

    classes: int = 10
    label_dropout: float = 0.1
    timesteps: int = 1000
    beta_start: float = 1e-4
    beta_end: float = 0.02
    loss_unit: float = 0.01
    retain_budget: float = 0.006
    forgets: Literal["label", "model"] = "label"
    adapter: Adapter = input_and_target

    def __post_init__(self) -> None:
        if self.classes < 1:
            raise GradPivotError(f"classes is {self.classes}; it must be ≥ 1")
        if not 0 < self.loss_unit < math.inf:
            raise GradPivotError(f"loss_unit is {self.loss_unit}; it must be > 0 and finite")
        if not 0 <= self.retain_budget < math.inf:
            raise GradPivotError(f"retain_budget is {self.retain_budget}; it must be ≥ 0 and finite")
        if self.forgets not in ("label", "model"):
            raise GradPivotError(f"forgets is {self.forgets!r}; choose label or model")
        if not 0 <= self.label_dropout < 1:
            raise GradPivotError(f"label_dropout is {self.label_dropout}; it must be ≥ 0 and < 1")
        if self.timesteps < 1 or not 0 < self.beta_start <= self.beta_end < 1:
            raise GradPivotError(
                f"timesteps is {self.timesteps} and β goes from {self.beta_start} to {self.beta_end}; they must "
                f"satisfy timesteps ≥ 1 and 0 < beta_start ≤ beta_end < 1"
            )

    @property
    def no_class(self) -> int:
        """The label ∅ for no class."""
        return self.classes

    def counterpart(self, objective: Objective) -> Objective:
        """The diffusion equivalent of a classification objective; other objectives are returned unchanged."""
        counterpart = COUNTERPARTS.get(objective.name)
        return objective if counterpart is None else objective_named(counterpart)

    def target_of(self, sample: Any) -> Any:
        """The label of a sample."""
        return self.adapter(sample)[1]

    def retain_loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Mean ‖ε − ε_θ(x_t, t, c)‖² per pixel, at one random t per sample and with label dropout in train mode."""
        from torch.nn.functional import mse_loss

        images, labels = self.clean(model, batch)
        noisy = self.noised(images)
        if model.training and self.label_dropout:
            labels = self.dropped(labels)
        return mse_loss(self.predicted(model, noisy, labels), noisy.noise)

    def forget_loss(self, model: nn.Module, batch: Any, objective: Objective) -> Tensor:
        """Mean of ``objective`` between the prediction ε_θ(x_t, t, c) and the objective's target.

        ======================  ====================================================================
        ``negative_mse``        ε, with negative sign (the paper's −MSE, unbounded below)
        ``other_class``         sg ε_θ(x_t, t, c′), with c′ ≠ c uniform per sample (SalUn)
        ``no_class``            sg ε_θ(x_t, t, ∅) (as in ESD)
        ``noise_image``         ε, for uniform noise images x_0 instead of the samples (SA)
        your own objective      ε
        ======================  ====================================================================

        sg stops the gradient: the model is its own teacher. Classification objectives are replaced by their diffusion
        equivalents: ``unlikelihood`` and ``random_label`` by ``other_class``, ``negative_ce`` by ``negative_mse``.
        There is no label dropout.
        """
        objective, noisy, labels, teacher_labels = self._to_forget(model, batch, objective)
        predicted = self.predicted(model, noisy, labels)
        if teacher_labels is None:
            return objective(predicted, noisy.noise)
        (target,) = self.predictions(model, noisy, teacher_labels)
        return objective(predicted, target)

    def anchored(self, original: nn.Module, split: ForgetSplit) -> AnchoredDiffusion:
        """The task relative to the original model (:mod:`gradpivot.tasks.diffusion.anchored`)."""
        from gradpivot.tasks.diffusion.anchored import AnchoredDiffusion

        return AnchoredDiffusion.of(self, original, split.classes, split.deleted_classes)

    def _to_forget(
        self, model: nn.Module, batch: Any, objective: Objective
    ) -> tuple[Objective, Noisy, Tensor, Tensor | None]:
        """The task's objective, the noised batch, its labels, and the teacher's labels."""
        objective = self.counterpart(objective)
        images, labels = self.clean(model, batch)
        if objective.name == "noise_image":
            images = 2 * _uniform_like(images) - 1
        noisy = self.noised(images)
        return objective, noisy, labels, self._teacher_labels(objective.name, labels)

    def predictions(self, model: nn.Module, noisy: Noisy, *labels: Tensor) -> tuple[Tensor, ...]:
        """ε_θ for one or more lists of labels, from one pass without gradient."""
        import torch

        times = len(labels)
        repeated = Noisy(*(torch.cat([part] * times) for part in noisy))
        with torch.no_grad():
            return self.predicted(model, repeated, torch.cat(labels)).chunk(times)

    def clean(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """x_0 in [−1, 1] in the model's dtype, and the labels."""
        images, labels = self.adapter(batch)
        weight = next(model.parameters())
        if images.ndim != 4:
            raise GradPivotError(
                f"images have the shape {tuple(images.shape)}; diffusion needs n×c×h×w, so reshape them in an adapter"
            )
        of_bytes = not images.is_floating_point()
        images = images.to(weight.device, weight.dtype)
        images = images / 127.5 - 1 if of_bytes else 2 * images - 1
        labels = labels.to(weight.device).long().reshape(-1)
        self._check_labels(model, labels)
        return images, labels

    def noised(self, images: Tensor) -> Noisy:
        """Noise images to x_t with a uniform t per sample, by diffusers' scheduler.

        Timesteps are stratified over the batch, because losses at t = 0 and t = T differ by a factor of ten (Kingma et
        al., "Variational Diffusion Models", NeurIPS 2021, appendix I.1).
        """
        import torch

        from gradpivot.runtime import draw_rows, draw_strata

        count, device = len(images), images.device
        timesteps = draw_strata(self.timesteps, count, device)
        noise = draw_rows(
            lambda n, generator: torch.randn(
                (n, *images.shape[1:]), generator=generator, device=device, dtype=images.dtype
            ),
            count,
            device,
        )
        return Noisy(self.schedule().add_noise(images, noise, timesteps), timesteps, noise)

    def predicted(self, model: nn.Module, noisy: Noisy, labels: Tensor) -> Tensor:
        """ε_θ(x_t, t, c), in float32 or higher precision."""
        import torch

        outputs = model(noisy.images, noisy.timesteps, class_labels=labels)
        found: Tensor = getattr(outputs, "sample", outputs)
        if not isinstance(found, torch.Tensor) or found.shape != noisy.images.shape:
            raise GradPivotError(
                f"the model returns shape {tuple(getattr(found, 'shape', ()))} for images of shape "
                f"{tuple(noisy.images.shape)}; it must predict the noise, with the shape of the images"
            )
        return found.float() if found.dtype in (torch.float16, torch.bfloat16) else found

    def schedule(self) -> Any:
        """The noise schedule as a cached diffusers ``DDPMScheduler``."""
        return _schedule(self.timesteps, self.beta_start, self.beta_end)

    def dropped(self, labels: Tensor) -> Tensor:
        """The labels, a fraction ``label_dropout`` of them replaced by *no class*."""
        import torch

        from gradpivot.runtime import draw_rows

        drawn = draw_rows(
            lambda n, generator: torch.rand(n, generator=generator, device=labels.device), len(labels), labels.device
        )
        return labels.where(drawn >= self.label_dropout, torch.full_like(labels, self.no_class))

    def _teacher_labels(self, objective: str, labels: Tensor) -> Tensor | None:
        """Labels whose prediction is the target; None if the target is the noise."""
        import torch

        from gradpivot.runtime import draw_labels

        if objective == "no_class":
            return torch.full_like(labels, self.no_class)
        if objective != "other_class":
            return None
        if self.classes < 2:
            raise GradPivotError("the objective other_class needs at least two classes, but there is one; use no_class")
        return (labels + 1 + draw_labels(self.classes - 1, len(labels), labels.device)) % self.classes

    def _check_labels(self, model: nn.Module, labels: Tensor) -> None:
        """Raise if the model has no embedding for *no class*, or a label is out of range."""
        known = getattr(getattr(model, "class_embedding", None), "num_embeddings", None)
        if known is not None and known < self.classes + 1:
            raise GradPivotError(
                f"the model has {known} class embeddings, but {self.classes} classes need one more for 'no class'; "
                f"create it with num_class_embeds={self.classes + 1}"
            )
        # On other devices this would synchronise on every batch; there torch asserts itself.
        if labels.device.type != "cpu" or len(labels) == 0:
            return
        least, most = labels.aminmax()
        if int(least) < 0 or int(most) >= self.classes:
            raise GradPivotError(
                f"a label is outside 0 … {self.classes - 1}; map the labels to that range, or set classes in Diffusion"
            )


def _uniform_like(images: Tensor) -> Tensor:
    import torch

    from gradpivot.runtime import draw_rows

    return draw_rows(
        lambda n, generator: torch.rand(
            (n, *images.shape[1:]), generator=generator, device=images.device, dtype=images.dtype
        ),
        len(images),
        images.device,
    )


@lru_cache(maxsize=8)
def _schedule(timesteps: int, beta_start: float, beta_end: float) -> Any:
    try:
        from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
    except ImportError as error:
        raise GradPivotError(f"diffusion needs diffusers ({error}): {install_command('diffusion')}") from None
    return DDPMScheduler(timesteps, beta_start, beta_end, beta_schedule="linear")
