"""BatchNorm during unlearning: an explicit policy, because forget batches rewrite running statistics otherwise.

In train mode the running mean and variance follow whatever passes through, whatever the gradients say: on a small MLP
the forget batches alone drove UA to 100 % at γ = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from gradpivot.data import Loader, cut, shuffled
from gradpivot.runtime import derive, evaluating, isolated

__all__ = [
    "POLICIES", "apply_policy", "has_batch_statistics", "recalibrate", "recalibrate_over", "running_statistics",
    "statistics_kept",
]  # fmt: skip

POLICIES = ("frozen", "train", "recalibrate")
"""``frozen``: running statistics are used and kept. ``train``: the usual train mode, as in the literature.
``recalibrate``: train mode, then new statistics from retain data alone."""

_SAMPLES = 2048
_LEAST_BATCH = 64


def apply_policy(model: nn.Module, policy: str) -> None:
    """Put the model in train mode, with its BatchNorm layers as the policy says."""
    model.train()
    if policy == "frozen":
        for layer in _layers(model):
            layer.eval()


@torch.no_grad()
def recalibrate(model: nn.Module, batches: Iterable[tuple[int, Any]], forward: Callable[[nn.Module, Any], Any]) -> None:
    """Replace running statistics by their mean over ``batches``; weights stay as they are.

    Args:
        model: Gets its modes back afterwards.
        batches: (Samples, batch): each counts by how many samples it has.
        forward: Runs the model on a batch.
    """
    layers = _layers(model)
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    seen = 0
    with evaluating(model):
        for layer in layers:
            layer.reset_running_stats()
            layer.train()
        for samples, batch in batches:
            seen += samples
            for layer in layers:
                layer.momentum = samples / seen
            forward(model, batch)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum


def recalibrate_over(
    model: nn.Module,
    dataset: Any,
    indices: np.ndarray,
    forward: Callable[[nn.Module, Any], Any],
    *,
    batch_size: int,
    seed: int,
    workers: int = 0,
) -> None:
    """:func:`recalibrate` over some samples of a data set, 2048 random ones at most, without augmentation.

    Args:
        model: Whose statistics.
        dataset: What it was trained on.
        indices: The samples to keep.
        forward: Runs the model on a batch.
        batch_size: That of the run, but 64 at least: the variance of a small batch is a poor one.
        seed: Decides which samples.
        workers: Data-loading processes.
    """
    order = cut(shuffled(indices, seed, "recalibrate")[:_SAMPLES], max(batch_size, _LEAST_BATCH))
    loader = Loader(dataset, next(model.parameters()).device, seed, workers)
    # What a forward pass draws is the same at every look and in every process.
    with isolated(derive(seed, "recalibrate")):
        recalibrate(model, zip(map(len, order), loader.batches(order, -1), strict=True), forward)


@contextmanager
def statistics_kept(model: nn.Module) -> Iterator[None]:
    """Let passes in train mode leave the running statistics as they are."""
    layers = [m for m in model.modules() if isinstance(m, _NormBase) and m.track_running_stats]
    momenta = [layer.momentum for layer in layers]
    counts = [(c, c.clone()) for layer in layers if (c := layer.num_batches_tracked) is not None]
    for layer in layers:
        # Means and variances are not put back afterwards: the backward pass may need the very buffers.
        layer.momentum = 0.0
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        for count, before in counts:
            count.copy_(before)


def running_statistics(model: nn.Module) -> list[Tensor]:
    """The running means and variances that a forward pass in the present modes would change."""
    return [
        buffer
        for module in model.modules()
        if isinstance(module, _NormBase) and module.training and module.track_running_stats
        for buffer in module.buffers(recurse=False)
        if buffer.is_floating_point()
    ]


def has_batch_statistics(model: nn.Module) -> bool:
    """Whether a sample's output depends on the others of its batch, by BatchNorm in train mode."""
    return any(isinstance(module, _BatchNorm) and module.training for module in model.modules())


def _layers(model: nn.Module) -> list[_BatchNorm]:
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
