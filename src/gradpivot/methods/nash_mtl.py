"""Nash-MTL: Nash bargaining between the losses (Navon et al., 2022); closed form for two losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.geometry import nash_weights
from gradpivot.methods.ga import GA
from gradpivot.methods.method import ForgettingDescent
from gradpivot.methods.weighted import WeightedDescent

if TYPE_CHECKING:
    from gradpivot.geometry import Weighting

__all__ = ["NashMTL"]


@dataclass(frozen=True, kw_only=True)
class NashMTL(WeightedDescent):
    """Nash bargaining: equal improvement of both losses relative to their gradient norms (Navon et al., 2022).

    It is invariant to the scale of the losses, so loss weights have no effect; its knob is the learning rate.
    """

    name: ClassVar[str] = "nash_mtl"
    title: ClassVar[str] = "Nash-MTL"
    knob: ClassVar[str | None] = "lr"
    # Every step has norm √2; the published code clips it to 1.
    paper: ClassVar[Mapping[str, Any]] = {**ForgettingDescent.paper, "max_norm": 1.0}
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = GA.paper_space

    def weighting(self) -> Weighting:
        """(1/‖f‖, 1/‖r‖) / √(1 + cos α)."""
        return nash_weights
