"""ResNets for 32×32 images (He et al., 2016, "Deep residual learning for image recognition").

ResNet-18 is the wide network that the unlearning literature trains on CIFAR-10; ResNet-20 and ResNet-56 are the
paper's own networks for CIFAR-10 (its section 4.2), a fortieth and a thirteenth of that.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradpivot.models.pixels import Pixels

__all__ = ["BasicBlock", "ResNet", "resnet18", "resnet20", "resnet56"]


class PaddedShortcut(nn.Module):
    """The shortcut without weights (option A of the paper): every ``stride``-th pixel, the new channels are zero.

    Half of the zeros come before and half after, as in common PyTorch implementations; the paper does not specify it.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, self.front = stride, (outputs - inputs) // 2
        self.behind = outputs - inputs - self.front

    def forward(self, images: Tensor) -> Tensor:
        """Feature maps in, smaller and deeper ones out."""
        kept = images[:, :, :: self.stride, :: self.stride]
        return nn.functional.pad(kept, (0, 0, 0, 0, self.front, self.behind))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with BatchNorm and a shortcut.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        stride: Stride of the first convolution.
        padded: If the shapes differ, pad the shortcut with zeros instead of projecting it.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, padded: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if (stride != 1 or inputs != outputs) and padded:
            self.shortcut = nn.Sequential(PaddedShortcut(inputs, outputs, stride))
        elif stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, images: Tensor) -> Tensor:
        """Feature maps in, feature maps out."""
        hidden = torch.relu(self.bn1(self.conv1(images)))
        return torch.relu(self.bn2(self.conv2(hidden)) + self.shortcut(images))


class ResNet(nn.Module):
    """A 3×3 stem, stages of basic blocks, each twice as wide as the one before, average pooling, one linear layer.

    Weights are channels-last, which makes convolutions on CPUs a sixth faster.

    Args:
        blocks: Number of blocks in each stage.
        classes: Number of outputs.
        pixels: Converts stored images to inputs; by default scales to [0, 1] only.
        channels: Image channels.
        width: Channels of the first stage.
        padded: Shortcuts between stages are padded with zeros (option A) instead of projected (option B).
    """

    def __init__(
        self,
        blocks: tuple[int, ...] = (2, 2, 2, 2),
        classes: int = 10,
        pixels: Pixels | None = None,
        *,
        channels: int = 3,
        width: int = 64,
        padded: bool = False,
    ) -> None:
        super().__init__()
        self.pixels = pixels or Pixels()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for stage, count in enumerate(blocks):
            outputs = width * 2**stage
            strides = [1 if stage == 0 else 2] + [1] * (count - 1)
            layer = []
            for stride in strides:
                layer.append(BasicBlock(inputs, outputs, stride, padded))
                inputs = outputs
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layer))
        self.linear = nn.Linear(inputs, classes)
        self._stages = len(blocks)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, size, size) to logits (n, classes)."""
        hidden = torch.relu(self.bn1(self.conv1(self.pixels(images))))
        for stage in range(self._stages):
            hidden = self.get_submodule(f"layer{stage + 1}")(hidden)
        logits: Tensor = self.linear(hidden.mean((2, 3)))
        return logits


def resnet18(classes: int = 10, pixels: Pixels | None = None, *, channels: int = 3) -> ResNet:
    """ResNet-18 for 32×32 images: 11,173,962 weights for ten classes, 555 million multiply-adds."""
    return ResNet((2, 2, 2, 2), classes, pixels, channels=channels)


def resnet20(classes: int = 10, pixels: Pixels | None = None, *, channels: int = 3) -> ResNet:
    """The paper's ResNet-20 for CIFAR-10 (option A): 269,722 weights ("0.27 M"), 41 million multiply-adds."""
    return ResNet((3, 3, 3), classes, pixels, channels=channels, width=16, padded=True)


def resnet56(classes: int = 10, pixels: Pixels | None = None, *, channels: int = 3) -> ResNet:
    """The paper's ResNet-56 for CIFAR-10 (option A): 853,018 weights ("0.85 M"), 125 million multiply-adds."""
    return ResNet((9, 9, 9), classes, pixels, channels=channels, width=16, padded=True)
