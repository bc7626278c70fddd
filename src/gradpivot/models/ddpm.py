"""Noise-prediction networks ε_θ(x_t, t, c) for class-conditional diffusion: diffusers' UNet2DModel, in two sizes.

Ho et al., "Denoising Diffusion Probabilistic Models" (NeurIPS 2020), with one more class label that stands for *no
class* (Ho & Salimans, "Classifier-Free Diffusion Guidance", 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gradpivot.errors import GradPivotError, install_command

if TYPE_CHECKING:
    from torch import nn

__all__ = ["paper_unet", "small_unet"]

_SMALL = {
    "block_out_channels": (32, 64),
    "layers_per_block": 1,
    "down_block_types": ("DownBlock2D",) * 2,
    "up_block_types": ("UpBlock2D",) * 2,
    # With the usual 32 groups every one of 32 channels would be normalised by itself.
    "norm_num_groups": 8,
}
_PAPER = {
    "block_out_channels": (128, 256, 256, 256),
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    "layers_per_block": 2, "attention_head_dim": 256, "dropout": 0.1, "norm_eps": 1e-6, "downsample_padding": 0,
    "flip_sin_to_cos": False, "freq_shift": 1,
}  # fmt: skip


def small_unet(channels: int = 1, size: int = 16, classes: int = 10) -> nn.Module:
    """Two resolutions of 32 and 64 channels, one residual block each: 0.65 million weights, for a CPU.

    Args:
        channels: Image channels.
        size: Height and width of the images, a multiple of 2.
        classes: Number of classes; label ``classes`` means *no class*.
    """
    return _unet(channels, size, classes, _SMALL)


def paper_unet(channels: int = 3, size: int = 32, classes: int = 10) -> nn.Module:
    """The CIFAR-10 network of DDPM: 128 channels, multipliers 1, 2, 2, 2, attention at 16×16; 35.8 million weights.

    Dropout, padding and time embedding as in google/ddpm-cifar10-32, and a class embedding. ``size`` is a multiple of
    8; otherwise as :func:`small_unet`.
    """
    return _unet(channels, size, classes, _PAPER)


def _unet(channels: int, size: int, classes: int, settings: Mapping[str, Any]) -> nn.Module:
    try:
        from diffusers.models.unets.unet_2d import UNet2DModel
    except ImportError as error:
        raise GradPivotError(f"diffusion needs diffusers ({error}): {install_command('diffusion')}") from None
    images = {"sample_size": size, "in_channels": channels, "out_channels": channels}
    made: nn.Module = UNet2DModel(**images, num_class_embeds=classes + 1, **settings)
    return made
