"""Looking at models that are scored as a whole, such as generators by their samples."""

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
    """Looks through a scorer, for a search that steers by it.

    A look at a generator draws samples, which takes many times what a prediction takes: what looks cost is counted, and
    does not shorten the search.

    Args:
        scorer: Scores models.
        split: What is forgotten.
        plain: Per-sample gradients of a plain run, the unit in which the cost of scoring is reported.
    """

    tells_degree = False
    """UA of samples is no degree of forgetting: guidance draws a clear picture from half of what the label says."""
    is_limited = False

    def __init__(self, scorer: Scorer, split: ForgetSplit, plain: float) -> None:
        self._scorer, self._split, self._plain = scorer, split, plain
        self.spent = 0.0
        """The looks so far, in plain runs."""

    @property
    def sizes(self) -> dict[str, int]:
        """How many samples are looked at."""
        return self._scorer.sizes(self._split)

    def look(self, model: nn.Module, metrics: Collection[str], *, quick: bool = False) -> Seen:
        """The scores that a search may ask for; all come from one look, whatever is asked for.

        Args:
            model: In any mode.
            metrics: Which of them.
            quick: No look is quicker than another.
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
