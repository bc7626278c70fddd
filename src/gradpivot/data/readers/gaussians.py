"""The paper's toy data: five Gaussians in the plane (Appendix, "Details for toy example")."""

from __future__ import annotations

import torch
from torch.utils.data import TensorDataset

from gradpivot.runtime import derive

__all__ = ["CENTRES", "load_gaussians"]

CENTRES = ((-2.0, 2.0), (-6.0, 6.0), (5.5, 4.0), (-4.0, -4.0), (5.0, -1.0))
_DEVIATIONS = (1.5, 1.0, 1.5, 1.5, 1.5)


def load_gaussians(
    samples: int = 2000, test_samples: int = 10_000, seed: int = 0
) -> tuple[TensorDataset, TensorDataset]:
    """Train and test sets of (point, cluster) with ``samples`` and ``test_samples`` points, equal clusters."""
    return _draw(samples, derive(seed, "train")), _draw(test_samples, derive(seed, "test"))


def _draw(samples: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % len(CENTRES)
    noise = torch.randn(samples, 2, generator=generator)
    points = torch.tensor(CENTRES)[labels] + noise * torch.tensor(_DEVIATIONS)[labels, None]
    return TensorDataset(points, labels)
