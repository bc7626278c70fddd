"""Class-conditional diffusion: predicting the noise keeps, a forgetting objective on the same prediction forgets.

Ho et al., "Denoising Diffusion Probabilistic Models" (NeurIPS 2020); Ho & Salimans, "Classifier-Free Diffusion
Guidance" (2021); Fan et al., "SalUn" (ICLR 2024); Heng & Soh, "Selective Amnesia" (NeurIPS 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from gradpivot.errors import GradPivotError, to_install
from gradpivot.tasks.batch import Adapter, input_and_target
from gradpivot.tasks.objectives import objective as objective_named
from gradpivot.tasks.task import Forgetting, GradualTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.tasks.objectives import Objective

__all__ = ["Diffusion", "Noisy"]

MEANT_HERE = {"unlikelihood": "other_class", "negative_ce": "negative_mse", "random_label": "other_class"}
"""What the objectives of classification, which are the methods' defaults, stand for with noise predictions."""


class Noisy(NamedTuple):
    """A batch on its way to noise."""

    images: Tensor
    """x_t = √ᾱ_t·x_0 + √(1 − ᾱ_t)·ε, n×c×h×w."""
    timesteps: Tensor
    """t, n whole numbers in 0 … T − 1."""
    noise: Tensor
    """ε ~ N(0, 1)."""


@dataclass(frozen=True)
class Diffusion(GradualTask):
    """A model ε_θ(x_t, t, c), called as diffusers' UNet2DModel: ``model(images, timesteps, class_labels=labels)``.

    Labels are 0 … classes − 1, and ``classes`` stands for *no class*. Every random number is drawn before the model is
    called, one row a sample (:func:`gradpivot.runtime.randomness.draw_rows`): under the Loop's seed of each step a
    resumed run draws the same, and several processes together draw what one would.

    Attributes:
        classes: How many classes there are, K.
        label_dropout: Share of labels that :meth:`retain_loss` replaces by *no class*, while the model is in train
            mode.
        timesteps: T.
        beta_start: The first β of the linear schedule.
        beta_end: Its last one.
        loss_unit: The change of a loss that matters as one nat does to a classifier: what trained models predict noise
            to, whatever the images.
        retain_budget: By how much L_r may rise over a whole run. The runs of ``docs/results/ddpm.md``, whose other
            classes stayed recognisable, rose by 0.014: a moving average predicts noise better than the weights do.
        adapter: From a sample or batch to (image, label). Images are bytes, or floating-point in [0, 1]; the model gets
            them in [−1, 1].
    """

    predicts: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ("diffusers",)

    classes: int = 10
    label_dropout: float = 0.1
    timesteps: int = 1000
    beta_start: float = 1e-4
    beta_end: float = 0.02
    loss_unit: float = 0.05
    retain_budget: float = 0.02
    adapter: Adapter = input_and_target

    def __post_init__(self) -> None:
        if self.classes < 1:
            raise GradPivotError(f"classes is {self.classes}; give 1 or more")
        if self.retain_budget < 0:
            raise GradPivotError(f"retain_budget is {self.retain_budget}; give 0 or more")
        if not 0 <= self.label_dropout < 1:
            raise GradPivotError(f"label_dropout is {self.label_dropout}; it must be a fraction ≥ 0 and < 1")
        if self.timesteps < 1 or not 0 < self.beta_start <= self.beta_end < 1:
            raise GradPivotError(
                f"timesteps is {self.timesteps} and β goes from {self.beta_start} to {self.beta_end}; give 1 step or "
                f"more, and 0 < beta_start ≤ beta_end < 1"
            )

    @property
    def no_class(self) -> int:
        """The label that says nothing, ∅."""
        return self.classes

    def meant(self, objective: Objective) -> Objective:
        """What an objective stands for here: the counterpart, for those of classification."""
        counterpart = MEANT_HERE.get(objective.name)
        return objective if counterpart is None else objective_named(counterpart)

    def target_of(self, sample: Any) -> Any:
        """The label of one sample."""
        return self.adapter(sample)[1]

    def retain_loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The mean ‖ε − ε_θ(x_t, t, c)‖² per pixel at one random t a sample; c is ∅ for a few, in train mode.

        Like any dropout the labels' is left out in eval mode (SalUn's mask, Fisher information).
        """
        from torch.nn.functional import mse_loss

        images, labels = self.clean(model, batch)
        noisy = self.noised(images)
        if model.training and self.label_dropout:
            labels = self._dropped(labels)
        return mse_loss(self.predicted(model, noisy, labels), noisy.noise)

    def forget_loss(self, model: nn.Module, batch: Any, objective: Objective) -> Tensor:
        """The mean of ``objective`` of the prediction ε_θ(x_t, t, c) and what the objective aims at.

        ======================  =====================================================================
        ``negative_mse``        ε, and away from it: the paper's −MSE, unbounded below
        ``other_class``         sg ε_θ(x_t, t, c′), c′ ≠ c uniform and new for every sample (SalUn's)
        ``no_class``            sg ε_θ(x_t, t, ∅): the label says nothing any more (as in ESD)
        ``noise_image``         ε for images x_0 of uniform noise in the place of the samples (SA's)
        an objective of yours   ε
        ======================  =====================================================================

        sg is *no gradient*: the model is its own teacher, and the retain loss keeps that in place. The defaults of
        methods, made for classification, stand for their counterparts here: ``unlikelihood`` and ``random_label`` for
        ``other_class``, ``negative_ce`` for ``negative_mse``. Labels are not dropped: what is forgotten is the class
        under its name.
        """
        meant, noisy, labels, taught = self._to_forget(model, batch, objective)
        predicted = self.predicted(model, noisy, labels)
        if taught is None:
            return meant(predicted, noisy.noise)
        (target,) = self._teachers(model, noisy, taught)
        return meant(predicted, target)

    def forgetting(self, model: nn.Module, batch: Any, objective: Objective) -> Forgetting:
        """:meth:`forget_loss`, and how much of what the label says about its images is forgotten.

        By the errors e_c = ‖ε − ε_θ(x_t, t, c)‖² and e_∅, per pixel: 1 − (e_∅ − e_c)/loss_unit. Over samples and
        timesteps e_∅ − e_c is the information that the label carries about the image (Kong, Brekelmans & Ver Steeg,
        "Information-Theoretic Diffusion", ICLR 2023), here with equal weights for all t. The mean is 1 where the label
        helps no more than none does. A single sample's number may lie outside [0, 1].

        Takes one more prediction than :meth:`forget_loss`, together with the teacher's.
        """
        import torch

        _refuse_without_degree(objective)
        meant, noisy, labels, taught = self._to_forget(model, batch, objective)
        predicted = self.predicted(model, noisy, labels)
        nothing = torch.full_like(labels, self.no_class)
        asked = [nothing] if taught is None or meant.name == "no_class" else [nothing, taught]
        without, *others = self._teachers(model, noisy, *asked)
        target = noisy.noise if taught is None else (*others, without)[0]
        return Forgetting(meant(predicted, target), self._degree(noisy, predicted.detach(), without))

    def degree(self, model: nn.Module, batch: Any, objective: Objective) -> Tensor:
        """The degree that :meth:`forgetting` tells, from one pass for both labels: no teacher, and no gradient."""
        import torch

        _refuse_without_degree(objective)
        images, labels = self.clean(model, batch)
        noisy = self.noised(images)
        nothing = torch.full_like(labels, self.no_class)
        return self._degree(noisy, *self._teachers(model, noisy, labels, nothing))

    def _degree(self, noisy: Noisy, predicted: Tensor, without: Tensor) -> Tensor:
        gain = (without - noisy.noise).square() - (predicted - noisy.noise).square()
        return 1 - gain.flatten(1).mean(1).double() / self.loss_unit

    def _to_forget(
        self, model: nn.Module, batch: Any, objective: Objective
    ) -> tuple[Objective, Noisy, Tensor, Tensor | None]:
        """What the objective means here, the noisy batch, its labels, and those whose prediction is the target."""
        objective = self.meant(objective)
        images, labels = self.clean(model, batch)
        if objective.name == "noise_image":
            images = 2 * _uniform_like(images) - 1
        noisy = self.noised(images)
        return objective, noisy, labels, self._taught(objective.name, labels)

    def _teachers(self, model: nn.Module, noisy: Noisy, *labels: Tensor) -> tuple[Tensor, ...]:
        """Predictions for other labels, without gradient, from one pass."""
        import torch

        times = len(labels)
        repeated = Noisy(*(torch.cat([part] * times) for part in noisy))
        with torch.no_grad():
            return self.predicted(model, repeated, torch.cat(labels)).chunk(times)

    def clean(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """x_0 in [−1, 1] in the model's number format, and the labels."""
        images, labels = self.adapter(batch)
        weight = next(model.parameters())
        if images.ndim != 4:
            raise GradPivotError(
                f"diffusion needs images n×c×h×w, and the batch has the shape {tuple(images.shape)}; reshape them in "
                f"an adapter"
            )
        of_bytes = not images.is_floating_point()
        images = images.to(weight.device, weight.dtype)
        images = images / 127.5 - 1 if of_bytes else 2 * images - 1
        labels = labels.to(weight.device).long().reshape(-1)
        self._refuse_labels(model, labels)
        return images, labels

    def noised(self, images: Tensor) -> Noisy:
        """x_t for a uniform t a sample, by diffusers' scheduler.

        The t of a batch are spread evenly, since losses at t = 0 and at T differ by a factor of ten (Kingma et al.,
        "Variational Diffusion Models", NeurIPS 2021, appendix I.1).
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
        """ε_θ(x_t, t, c), in float32 at least."""
        import torch

        outputs = model(noisy.images, noisy.timesteps, class_labels=labels)
        found: Tensor = getattr(outputs, "sample", outputs)
        if not isinstance(found, torch.Tensor) or found.shape != noisy.images.shape:
            raise GradPivotError(
                f"the model gives {tuple(getattr(found, 'shape', ()))} for images of {tuple(noisy.images.shape)}; it "
                f"must predict the noise, one number a pixel"
            )
        return found.float() if found.dtype in (torch.float16, torch.bfloat16) else found

    def schedule(self) -> Any:
        """The noise schedule as diffusers' DDPMScheduler; one for all tasks with these numbers."""
        return _schedule(self.timesteps, self.beta_start, self.beta_end)

    def _dropped(self, labels: Tensor) -> Tensor:
        import torch

        from gradpivot.runtime import draw_rows

        drawn = draw_rows(
            lambda n, generator: torch.rand(n, generator=generator, device=labels.device), len(labels), labels.device
        )
        return labels.where(drawn >= self.label_dropout, torch.full_like(labels, self.no_class))

    def _taught(self, objective: str, labels: Tensor) -> Tensor | None:
        """The labels whose prediction is the target; None if that is the noise itself."""
        import torch

        from gradpivot.runtime import draw_labels

        if objective == "no_class":
            return torch.full_like(labels, self.no_class)
        if objective != "other_class":
            return None
        if self.classes < 2:
            raise GradPivotError("the objective other_class needs another class, and there is one; use no_class")
        return (labels + 1 + draw_labels(self.classes - 1, len(labels), labels.device)) % self.classes

    def _refuse_labels(self, model: nn.Module, labels: Tensor) -> None:
        """Raise if the model has no room for *no class*, or a label is none of the classes."""
        known = getattr(getattr(model, "class_embedding", None), "num_embeddings", None)
        if known is not None and known < self.classes + 1:
            raise GradPivotError(
                f"the model has {known} class labels, and {self.classes} classes need one more for no class; make it "
                f"with num_class_embeds={self.classes + 1}"
            )
        # On other devices this would stop the queue at every batch; there torch asserts by itself.
        if labels.device.type != "cpu" or len(labels) == 0:
            return
        least, most = labels.aminmax()
        if int(least) < 0 or int(most) >= self.classes:
            raise GradPivotError(
                f"a label is outside 0 … {self.classes - 1}; map the labels to that range, or say classes= in Diffusion"
            )


def _refuse_without_degree(objective: Objective) -> None:
    if objective.name == "noise_image":
        raise GradPivotError(
            "the objective noise_image looks at no image of what is forgotten, so there is no degree of it; use "
            "dial='angle', or the objective other_class"
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
        raise GradPivotError(f"diffusion needs diffusers ({error}): {to_install('diffusion')}") from None
    return DDPMScheduler(timesteps, beta_start, beta_end, beta_schedule="linear")
