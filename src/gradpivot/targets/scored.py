"""Looking at generators: UA and RA of their samples, in the place of predictions."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.targets.conditions import Seen
from gradpivot.targets.looking import FORWARD

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.evaluate import Examination

__all__ = ["SampleLooker"]

KNOWN = ("ua", "ra")
"""What samples tell."""


class SampleLooker:
    """Scores generators by an examination, for a search that steers by it.

    A look draws samples, which takes many times what a prediction takes: what looks cost is counted, and does not
    shorten the search.

    Args:
        examination: Draws and judges.
        plain: Gradients of a sample that a plain run takes; what looks cost is told as a share of it.
    """

    tells_degree = False
    """UA of samples is no degree of forgetting: guidance draws a clear picture from half of what the label says."""
    is_limited = False

    def __init__(self, examination: Examination, plain: float) -> None:
        self._examination, self._plain = examination, plain
        self.spent = 0.0
        """The looks so far, in plain runs."""

    @property
    def sizes(self) -> dict[str, int]:
        """How many samples are looked at."""
        return {"samples": self._examination.samples}

    @staticmethod
    def check(metrics: Collection[str]) -> None:
        """Raise, before anything runs, for a score that samples do not tell.

        Raises:
            GradPivotError: with those that they do.
        """
        if unknown := sorted(set(metrics) - set(KNOWN)):
            raise GradPivotError(
                f"{unknown[0].upper()} is no score of samples; for a generator ask for UA (the forgotten class is not "
                f"recognised) and RA (the others are)"
            )

    def look(self, model: nn.Module, metrics: Collection[str], *, quick: bool = False) -> Seen:
        """UA and RA of the model's samples; both come from one look, whatever is asked for.

        Args:
            model: In any mode.
            metrics: Which of them.
            quick: No look is quicker than another.
        """
        if not metrics:
            return Seen()
        self.spent += FORWARD * self._examination.passes / self._plain
        try:
            scores = self._examination.of(model).scores
        except NonFiniteError:
            return Seen(ua=0.0, ra=0.0)
        return Seen(ua=scores.ua, ra=scores.ra)
