"""Autoencoding: the negative ELBO to retain, a forgetting objective on it to forget."""

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

_BUDGET = 0.01


@dataclass(frozen=True)
class Autoencoding(GradualTask):
    """A variational autoencoder with Bernoulli likelihood: a model from images to (pixel logits, μ, log σ²).

    Losses are in nats per pixel, so that learning rate and gradient clipping do not depend on the image size.

    Attributes:
        adapter: Maps a sample or batch to (image, label); labels only select what to forget.
        ignorance: Loss of an uninformed model in nats per pixel, at which the objective ``hinge`` stops. The default
            log 2 is that of a constant 1/2; :meth:`from_images` estimates it from data.
        forgets: What the forgetting loss updates: the ``decoder``, or the whole ``model`` as in the paper. With the
            latter the encoder can raise the loss by moving the codes far away, and the decoder still generates the
            images.
    """

    predicts: ClassVar[bool] = False

    adapter: Adapter = input_and_target
    ignorance: float = math.log(2)
    forgets: Literal["decoder", "model"] = "decoder"

    @classmethod
    def from_images(cls, forget: Tensor, retain: Tensor, **fields: Any) -> Autoencoding:
        """Create the task with ``ignorance`` estimated from data.

        It is the loss of predicting the mean retain image for the forget images. For digits this is far below log 2,
        because most pixels are always black.

        Args:
            forget: Images (n, c, h, w), uint8 or in [0, 1].
            retain: Images (n, c, h, w), uint8 or in [0, 1].
            **fields: Other fields of the task.
        """
        observed = _in_unit_range(forget).double().mean(0)
        # Clamp by half a grey level: a pixel that is black in all retain images may not be in others.
        expected = _in_unit_range(retain).double().mean(0).clamp(1 / 510, 1 - 1 / 510)
        nats = -(observed * expected.log() + (1 - observed) * (1 - expected).log())
        return cls(ignorance=float(nats.mean()), **fields)

    def target_of(self, sample: Any) -> Any:
        """The label of a sample."""
        return self.adapter(sample)[1]

    def losses(self, model: nn.Module, batch: Any, *, fixed_codes: bool = False) -> Tensor:
        """−ELBO(x)/pixels of each image: (−E_q log p(x|z) + KL(q(z|x) ‖ p(z))) / pixels, with one sample of z.

        Args:
            model: The model; needs ``encode`` and ``decode`` for fixed codes.
            batch: Images and labels.
            fixed_codes: Whether to block the gradient to the encoder.
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
        """Mean −ELBO in nats per pixel."""
        return self.losses(model, batch).mean()

    def forget_loss(self, model: nn.Module, batch: Any, objective: Objective) -> Tensor:
        """Mean of ``objective`` over the per-image losses."""
        losses = self.losses(model, batch, fixed_codes=self.forgets == "decoder")
        return objective.of(losses, self.ignorance)

    def forgetting(self, model: nn.Module, batch: Any, objective: Objective) -> Forgetting:
        """:meth:`forget_loss` and the degree of forgetting: loss/ignorance, at most 1."""
        losses = self.losses(model, batch, fixed_codes=self.forgets == "decoder")
        degree = (losses.detach() / self.ignorance).clamp(0, 1).double()
        return Forgetting(objective.of(losses, self.ignorance), degree)

    @property
    def loss_unit(self) -> float:
        """Equivalent of one nat for a classifier with ten classes, whose uninformed loss is log 10."""
        return self.ignorance / math.log(10)

    @property
    def retain_budget(self) -> float:
        """1 % of the loss of an uninformed model: about two nats per image on MNIST."""
        return _BUDGET * self.ignorance


def _with_fixed_codes(model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A forward pass with z detached from the encoder."""
    import torch

    if not (hasattr(model, "encode") and hasattr(model, "decode")):
        raise GradPivotError(
            f"{type(model).__name__} needs encode(images) → (μ, log σ²) and decode(z) → logits to forget in the "
            f"decoder; add them, or use Autoencoding(forgets='model')"
        )
    with torch.no_grad():
        mean, log_variance = model.encode(images)  # type: ignore[operator]
        codes = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
    return model.decode(codes), mean, log_variance  # type: ignore[operator]


def _in_unit_range(images: Tensor) -> Tensor:
    """Scale uint8 images to [0, 1]; floating-point images are already in this range."""
    return images.float() if images.is_floating_point() else images.float() / 255
