"""Scores during a search for models that are not scored set by set, such as generators."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from gradpivot.errors import NonFiniteError
from gradpivot.targets.conditions import Seen
from gradpivot.targets.looking import FORWARD

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.evaluate import Scorer

__all__ = ["ScoreLooker"]


class ScoreLooker:
    """Measures scores with a scorer, and counts the cost.

    Sampling from a generator costs far more than a prediction, so the cost does not count towards the budget.

    Args:
        scorer: Scores models.
        split: The data to forget and to retain.
        plain: Per-sample gradients of a plain run, the unit of cost.
    """

    tells_degree = False
    """UA of samples is not the degree of forgetting: with guidance, a half-forgotten class still looks clear."""
    is_limited = False

    def __init__(self, scorer: Scorer, split: ForgetSplit, plain: float) -> None:
        self._scorer, self._split, self._plain = scorer, split, plain
        self.spent = 0.0
        """Cost of the measurements so far, in plain runs."""

    @property
    def sizes(self) -> dict[str, int]:
        """Number of samples measured in each set."""
        return self._scorer.sizes(self._split)

    def look(self, model: nn.Module, metrics: Collection[str], *, quick: bool = False) -> Seen:
        """Measure all metrics of the scorer, unless ``metrics`` is empty.

        Args:
            model: The model, in any mode.
            metrics: Names of metrics.
            quick: Ignored.
        """
        if not metrics:
            return Seen()
        self.spent += FORWARD * self._scorer.passes(self._split) / self._plain
        known = self._scorer.steerable
        try:
            scores = self._scorer.scores(model, self._split)
        except NonFiniteError:
            worst = Seen.of_nothing()
            return Seen(**{name: getattr(worst, name) for name in known})
        return Seen(**{name: float(getattr(scores, name)) for name in known})
