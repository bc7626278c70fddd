"""Autoencoding: the negative evidence lower bound keeps, an objective of the same losses forgets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gradpivot.errors import GradPivotError
from gradpivot.tasks.batch import Adapter, input_and_target
from gradpivot.tasks.task import Forgetting, GradualTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.tasks.objectives import Objective

__all__ = ["Autoencoding"]


@dataclass(frozen=True)
class Autoencoding(GradualTask):
    """A model from images to (pixel logits, μ, log σ²): a variational autoencoder with a Bernoulli likelihood.

    Losses are in nats per pixel, an image's −ELBO over its number of pixels, so that a learning rate and a limit on the
    gradient's length mean the same for every size of image.

    Attributes:
        adapter: From a sample or batch to (image, label); labels only say what is to be forgotten.
        ignorance: The loss of knowing nothing of an image, in nats per pixel, where the objective ``hinge`` stops.
            log 2, the default, is that of a model that knows nothing at all; :meth:`ignorant_of` takes it from the
            data.
        forgets: What the forgetting loss may change. ``decoder``: what generates. The whole ``model``, as printed,
            takes the shorter way: the encoder sends the images to codes far off, where their loss is as high as one
            likes, and the decoder makes them as before.
    """

    predicts: ClassVar[bool] = False

    adapter: Adapter = input_and_target
    ignorance: float = math.log(2)
    forgets: Literal["decoder", "model"] = "decoder"

    @classmethod
    def ignorant_of(cls, forget: Tensor, retain: Tensor, **fields: Any) -> Autoencoding:
        """The task with the ignorance of a model that has seen the retained images only, and only their mean.

        What the images to forget cost coded with the mean retained image, which is far less than log 2 for digits: most
        pixels are black in all of them.

        Args:
            forget: Images (n, c, h, w), as bytes or in [0, 1].
            retain: The same.
            **fields: The others.
        """
        told = _in_unit_range(forget).double().mean(0)
        # A pixel that is black in all retained images may not be so in another: half a grey level for all.
        expected = _in_unit_range(retain).double().mean(0).clamp(1 / 510, 1 - 1 / 510)
        nats = -(told * expected.log() + (1 - told) * (1 - expected).log())
        return cls(ignorance=float(nats.mean()), **fields)

    def target_of(self, sample: Any) -> Any:
        """The label of one sample."""
        return self.adapter(sample)[1]

    def losses(self, model: nn.Module, batch: Any, *, fixed_codes: bool = False) -> Tensor:
        """−ELBO(x)/pixels, one for each image: (−E_q log p(x|z) + KL(q(z|x) ‖ p(z))) / pixels with one sample of z.

        Args:
            model: From images to (pixel logits, μ, log σ²); with ``encode`` and ``decode`` for fixed codes.
            batch: Images and labels.
            fixed_codes: Let no gradient through to the encoder.
        """
        from torch.nn.functional import binary_cross_entropy_with_logits

        images, _ = self.adapter(batch)
        logits, mean, log_variance = (
            part.float() for part in (_with_fixed_codes(model, images) if fixed_codes else model(images))
        )
        pixels = _in_unit_range(images)
        missed = binary_cross_entropy_with_logits(logits, pixels, reduction="none").flatten(1).sum(1)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1)
        return (missed + divergence) / pixels[0].numel()

    def retain_loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The mean −ELBO in nats per pixel."""
        return self.losses(model, batch).mean()

    def forget_loss(self, model: nn.Module, batch: Any, objective: Objective) -> Tensor:
        """The mean of ``objective`` of the losses."""
        losses = self.losses(model, batch, fixed_codes=self.forgets == "decoder")
        return objective.of(losses, self.ignorance)

    def forgetting(self, model: nn.Module, batch: Any, objective: Objective) -> Forgetting:
        """:meth:`forget_loss`, and how near the losses are to that of knowing nothing: loss/ignorance, at most 1."""
        losses = self.losses(model, batch, fixed_codes=self.forgets == "decoder")
        degree = (losses.detach() / self.ignorance).clamp(0, 1).double()
        return Forgetting(objective.of(losses, self.ignorance), degree)

    @property
    def loss_unit(self) -> float:
        """What a nat is to a classifier of ten classes, whose ignorance is log 10."""
        return self.ignorance / math.log(10)


def _with_fixed_codes(model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One pass with z drawn as the model draws it, and z a constant to the decoder."""
    import torch

    if not (hasattr(model, "encode") and hasattr(model, "decode")):
        raise GradPivotError(
            f"forgetting in the decoder needs encode(images) → (μ, log σ²) and decode(z) → logits, and "
            f"{type(model).__name__} lacks one; add it, or use Autoencoding(forgets='model')"
        )
    with torch.no_grad():
        mean, log_variance = model.encode(images)  # type: ignore[operator]
        codes = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
    return model.decode(codes), mean, log_variance  # type: ignore[operator]


def _in_unit_range(images: Tensor) -> Tensor:
    """Bytes as fractions of 255; floating-point images are in [0, 1] already."""
    return images.float() if images.is_floating_point() else images.float() / 255
