"""SalUn: random labels, learned by the most salient weights only (Fan et al., ICLR 2024)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gradpivot.methods.rl import RL

__all__ = ["SalUn"]


@dataclass(frozen=True, kw_only=True)
class SalUn(RL):
    """Random labels, training only the weights most salient for the forget set (Fan et al., 2024).

    The mask keeps the largest values of ``|Σ_{x∈D_f} ∇_θ(−CE(x))|``. The Loop computes it once, on the original model
    in eval mode (:func:`gradpivot.loop.saliency.saliency_mask`), and leaves all other weights unchanged.

    Attributes:
        saliency: Fraction of the weights to update, in (0, 1].
    """

    name: ClassVar[str] = "salun"
    title: ClassVar[str] = "SalUn"
    knob: ClassVar[str | None] = "lr"
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "lr": (1e-4, 5e-4, 1e-3, 5e-3, 1e-2),
        "saliency": (0.1, 0.3, 0.5, 0.7),
    }

    saliency: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("saliency", gt=0, le=1)
