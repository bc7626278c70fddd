"""What a run gives: the new model, its scores, telemetry and provenance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import Pictures, Scored, Scores
from gradpivot.methods import Method
from gradpivot.models import weights_digest
from gradpivot.results import Point

__all__ = ["Result"]


MISSED = 0.03
"""Landing is exact to a point; a degree missed by more than this was not reached."""
MISSED_WAY = 0.1
"""The same for a degree of doubt, as a share of the way to it."""
FEW_STEPS = 40


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """What unlearning gave.

    Attributes:
        model: The new model; the last finite weights if the run diverged.
        scores: What the run's scorer says: of a classifier RA, UA, TA and MIA as fractions, zeros if the run diverged.
        method: What was run.
        history: Telemetry, one list per column, one entry per step.
        seconds: Wall-clock of unlearning, preparation included, evaluation not.
        evaluation_seconds: Wall-clock of scoring what came out.
        diverged: None, or the step and the reason.
        note: What the method has to say of the run, if there is something to be told.
        pictures: What a generator drew, where its samples were judged.
        provenance: Split, seed, settings, versions, machine class, date.
    """

    model: nn.Module
    scores: Scored
    method: Method
    history: dict[str, list[Any]]
    seconds: float
    evaluation_seconds: float
    diverged: dict[str, Any] | None
    provenance: dict[str, Any]
    note: str | None = None
    pictures: Pictures | None = None

    def __repr__(self) -> str:
        shares = [f"{name.upper()} {100 * getattr(self.scores, name):.2f} %" for name in self.scores.metrics]
        scores = ", ".join(shares) or str(self.scores)
        outcome = f"diverged at step {self.diverged['step']}" if self.diverged else scores
        return f"{type(self).__name__}({self.method.label}: {outcome}; {self.seconds:.1f} s)"

    @property
    def asked_ua(self) -> float | None:
        """The UA that was asked for by γ as a degree; None for what asks for none, and where UA is no degree."""
        asked = self.history.get("asked")
        if not asked or not isinstance(self.scores, Scores) or self._looked_at_unseen:
            return None
        return float(asked[-1])

    @property
    def _looked_at_unseen(self) -> bool:
        return bool(self.provenance.get("looked_at_unseen"))

    @property
    def is_original(self) -> bool:
        """Whether the model is the one that was given, bit for bit."""
        return bool(weights_digest(self.model) == self.provenance["original_weights"])

    @property
    def missed(self) -> str | None:
        """One line if much less was forgotten than was asked for, with what may help; None if it was not."""
        gamma = getattr(self.method, "gamma", 0.0)
        if self.diverged or gamma == 0:
            return None
        unchanged = self.is_original
        told = self.note or (self._missed_doubt(unchanged) if self._looked_at_unseen else self._missed_ua(unchanged))
        return f"the model is the original, unchanged: {told}" if told and unchanged else told

    def _missed_ua(self, unchanged: bool) -> str | None:
        asked = self.asked_ua
        if asked is None or (self.scores.ua >= asked - MISSED and not unchanged):
            return None
        reached = f"asked for UA {100 * asked:.1f} %, reached {100 * self.scores.ua:.1f} %"
        return f"{reached}: {self._help(unchanged)}"

    def _missed_doubt(self, unchanged: bool) -> str | None:
        if not self.history.get("asked"):
            return None
        start, most, asked, reached = (self.history[name][-1] for name in ("start", "most", "asked", "reached"))
        near = max(MISSED_WAY * (asked - start), MISSED * (most - start))
        if reached >= asked - near and not unchanged:
            return None
        doubt = f"asked for a mean doubt of {100 * asked:.2f} %, reached {100 * reached:.2f} %"
        return f"{doubt}: {self._help(unchanged)}"

    def _help(self, unchanged: bool) -> str:
        steps, kind = len(self.history.get("step", ())), self.provenance["split"]["kind"]
        if steps < FEW_STEPS:
            return f"{steps} steps are few, allow it more epochs"
        told = "more would have cost too much of what is kept"
        if kind == "class" and not unchanged:
            return f"{told}; a longer run may find a way"
        if kind != "class" and not self._looked_at_unseen:
            told += ". A retrained model recognises most single records, too"
        # γ = 1 is allowed all of it without being told.
        spent = getattr(self.method, "gamma", 1.0) == 1 or getattr(self.method, "budget", None) == 1
        cost = "" if spent else "allow all that a run may cost (budget 1), "
        return (
            f"{told}. A longer run may find a way; or {cost}ask for a target (until), or take a point of a quick trace "
            f"(docs/quickstart.md)"
        )

    def point(self) -> Point:
        """The run as a point of a frontier.

        Raises:
            GradPivotError: for scores that no frontier can be made of.
        """
        if not self.scores.metrics:
            raise GradPivotError(
                f"{self.method.label} has no scores to compare: {self.scores}; judge its samples by a scorer"
            )
        settings = self.method.to_dict()
        knob = settings.get(self.method.active_knob) if self.method.active_knob else None
        return Point(
            label=self.method.label,
            settings=settings,
            scores=self.scores,
            knob=knob,
            seconds=self.seconds,
            diverged=self.diverged,
            history=self.history,
        )
