"""A variational autoencoder with fully connected layers (Kingma & Welling, 2014)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gradpivot.models.mlp import MLP
from gradpivot.models.pixels import Pixels

__all__ = ["VAE", "Reconstruction"]


class Reconstruction(NamedTuple):
    """Output of a variational autoencoder."""

    logits: Tensor
    """Of the pixels under a Bernoulli likelihood, in the images' shape."""
    mean: Tensor
    """μ of q(z|x), n×d."""
    log_variance: Tensor
    """log σ² of q(z|x), n×d."""


class VAE(nn.Module):
    """q(z|x) = N(μ(x), σ²(x)) and p(x|z) = Bernoulli(decoder(z)) for images in [0, 1], grey values as probabilities.

    Args:
        latent: Dimensions of z; two can be drawn as a map.
        widths: Widths of the hidden layers of the encoder; the decoder reverses them.
        channels: Image channels.
        size: Height and width of the images.
    """

    def __init__(
        self, latent: int = 2, widths: Sequence[int] = (256, 128), *, channels: int = 1, size: int = 28
    ) -> None:
        super().__init__()
        self.latent, self.shape = latent, (channels, size, size)
        numbers = channels * size * size
        self.pixels = Pixels()
        self.encoder = MLP((numbers, *widths, 2 * latent))
        self.decoder = MLP((latent, *reversed(widths), numbers))

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images (n, c, h, w), stored as bytes or in [0, 1], to μ and log σ², each n×d."""
        mean, log_variance = self.encoder(self.pixels(images).flatten(1)).chunk(2, dim=1)
        return mean, log_variance

    def decode(self, codes: Tensor) -> Tensor:
        """Codes n×d to pixel logits (n, c, h, w); their sigmoid is the image."""
        logits: Tensor = self.decoder(codes)
        return logits.reshape(-1, *self.shape)

    def forward(self, images: Tensor) -> Reconstruction:
        """One sample z = μ + σε per image; ε comes from torch's generator, which the Loop seeds at every step."""
        mean, log_variance = self.encode(images)
        codes = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
        return Reconstruction(self.decode(codes), mean, log_variance)
