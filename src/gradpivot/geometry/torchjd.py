"""Convert between gradpivot's weightings and TorchJD's (extra ``torchjd``).

TorchJD's Gramian-based weightings are modules from an m×m matrix to m weights; ours are functions from three
floats to two. Rows are always (forget, retain).

Reference:
    Quinton & Rey (2024), "Jacobian Descent for Multi-Objective Optimization", arXiv:2406.16232.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gradpivot.errors import GradPivotError
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.weighting import Weighting, Weights

if TYPE_CHECKING:
    from torchjd.aggregation import Weighting as TorchJDWeighting

__all__ = ["as_torchjd", "from_torchjd"]


def as_torchjd(weighting: Weighting) -> TorchJDWeighting[Tensor]:
    """One of our weightings as a TorchJD weighting of the 2×2 Gramian of (forget, retain).

    Example:
        ``GramianWeightedAggregator(as_torchjd(PivotWeighting(0.5)))(jacobian)``
    """
    from torchjd.aggregation import Weighting as Base

    class GradPivotWeighting(Base[Tensor]):
        """A gradpivot weighting behind TorchJD's interface."""

        def forward(self, gramian: Tensor, /) -> Tensor:
            """Two weights in the Gramian's dtype."""
            if tuple(gramian.shape) != (2, 2):
                raise GradPivotError(
                    f"the Gramian has shape {tuple(gramian.shape)}; it must be (2, 2), for the forget and retain "
                    f"losses in this order"
                )
            (ff, fr), (_, rr) = gramian.detach().double().tolist()
            return torch.tensor(weighting(Gram(ff, rr, fr)), dtype=gramian.dtype, device=gramian.device)

    return GradPivotWeighting()


def from_torchjd(weighting: Callable[[Tensor], Tensor]) -> Weighting:
    """Convert a TorchJD weighting, as in ``Pivot(weighting=from_torchjd(MGDAWeighting()))``."""

    def weigh(gram: Gram, /) -> Weights:
        gramian = torch.tensor([[gram.ff, gram.fr], [gram.fr, gram.rr]], dtype=torch.float64)
        forget, retain = weighting(gramian).double().tolist()
        return Weights(forget, retain)

    return weigh
