"""The result of a run: the new model, its scores, telemetry and provenance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import nn

from gradpivot.dial import DialSettings, target_degree
from gradpivot.errors import GradPivotError
from gradpivot.evaluate import Pictures, Scored, Scores
from gradpivot.methods import Method
from gradpivot.models import weights_digest
from gradpivot.results import Point
from gradpivot.runs.earlier import AlreadyForgotten

__all__ = ["Result"]

UA_TOLERANCE = 0.03
"""Report a UA as missed if it falls short of the requested UA by more than this."""
UNCERTAINTY_TOLERANCE = 0.1
"""The same for a mean uncertainty, as a fraction of the requested increase."""
FEW_STEPS = 40
"""Suggest more epochs to a run shorter than this."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """The result of unlearning.

    Attributes:
        model: The new model; the last finite weights if the run diverged.
        scores: Scores from the run's scorer. For a classifier RA, UA, TA and MIA as fractions, and AUC and uncertainty
            of forgotten records; zeros if the run diverged.
        method: The method and its settings.
        history: Telemetry, one list per column, one entry per step.
        seconds: Unlearning time, including preparation but not evaluation.
        evaluation_seconds: Time spent on scoring the new model.
        diverged: Step and reason if the run diverged, else None.
        note: Message from the method about the run, or None.
        pictures: Samples of a generator whose samples were judged, else None.
        provenance: Split, seed, settings, versions, machine class, date.
        already_forgotten: What happened to the records that earlier requests deleted; None if there are none, the run
            diverged, or the model predicts no labels.
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
    already_forgotten: AlreadyForgotten | None = None

    def __repr__(self) -> str:
        outcome = f"diverged at step {self.diverged['step']}" if self.diverged else self._scores_text()
        return f"{type(self).__name__}({self.method.label}: {outcome}; {self.seconds:.1f} s)"

    def _scores_text(self) -> str:
        if isinstance(self.scores, Scores):
            return self.scores.text(self.kind)
        shares = [f"{name.upper()} {100 * getattr(self.scores, name):.2f} %" for name in self.scores.metrics]
        return ", ".join(shares) or str(self.scores)

    @property
    def kind(self) -> str:
        """Kind of split: ``class``, ``random``, ``index`` or ``predicate``."""
        return str(self.provenance["split"]["kind"])

    @property
    def asked_ua(self) -> float | None:
        """The UA requested by γ; None if γ does not request a UA."""
        asked = self.history.get("asked")
        if not asked or not isinstance(self.scores, Scores) or self._goal_is_unseen:
            return None
        return float(asked[-1])

    @property
    def _goal_is_unseen(self) -> bool:
        return bool(self.provenance.get("looked_at_unseen"))

    @property
    def is_original(self) -> bool:
        """Whether the model is bit-identical to the original."""
        return bool(weights_digest(self.model) == self.provenance["original_weights"])

    @property
    def missed(self) -> str | None:
        """One line with degree asked, degree reached, reason and advice if the run ended short of it, else None."""
        gamma = getattr(self.method, "gamma", 0.0)
        if self.diverged or gamma == 0 or not self.history.get("asked"):
            return None
        unchanged = self.is_original
        reason = self._missed_degree(unchanged) if self.asked_ua is None else self._missed_ua(unchanged)
        return f"the model is the original, unchanged: {reason}" if reason and unchanged else reason

    def _missed_ua(self, unchanged: bool) -> str | None:
        asked = self.asked_ua
        if asked is None or (self.scores.ua >= asked - UA_TOLERANCE and not unchanged):
            return None
        reached = f"asked for UA {100 * asked:.1f} %, reached {100 * self.scores.ua:.1f} %"
        return f"{reached}: {self._advice(unchanged)}"

    def _missed_degree(self, unchanged: bool) -> str | None:
        start, most, asked, reached = (self.history[name][-1] for name in ("start", "most", "asked", "reached"))
        tolerance = max(UNCERTAINTY_TOLERANCE * abs(asked - start), UA_TOLERANCE * abs(most - start))
        if reached >= asked - tolerance and not unchanged:
            return self._walked_back(most - start)
        degree = "mean uncertainty" if self._goal_is_unseen else "degree of forgetting"
        outcome = f"asked for a {degree} of {100 * asked:.2f} %, reached {100 * reached:.2f} %"
        return f"{outcome}: {self._advice(unchanged)}"

    def _walked_back(self, gap: float) -> str | None:
        """Why a restart is not as far on the line as γ asks, where the uncertainty does not tell."""
        gamma, landed = getattr(self.method, "gamma", None), (self.history.get("landed") or [None])[-1]
        if not self._restarted or gamma is None or landed is None:
            return None
        # Points on the line may be less certain than its ends. At γ = 1 only the end is without the original's weights.
        if gap > DialSettings().repair_gap and not math.isclose(gamma, 1):
            return None
        asked = target_degree(gamma)
        if landed >= asked:
            return None
        way = f"asked for {100 * asked:.1f} % of the line to the end of the restart, landed at {100 * landed:.1f} %"
        kept = "; the weights are mixed with the original's, so this is not a deletion" if asked == 1 else ""
        return f"{way}: {self._advice(unchanged=False)}{kept}"

    @property
    def _restarted(self) -> bool:
        """Whether no gradient of the forget loss steered it."""
        return self._goal_is_unseen and getattr(self.method, "shrink", 1) != 1

    def _advice(self, unchanged: bool) -> str:
        steps, kind = len(self.history.get("step", ())), self.kind
        landed = (self.history.get("landed") or [None])[-1]
        if self._restarted:
            if landed is not None and landed < 1:
                return "held-out data would be predicted worse; raise training_epochs, or check training_lr and factory"
            return "kept weights still know the records; lower shrink, unfreeze layers, or check factory"
        if steps < FEW_STEPS:
            return f"{steps} steps are few; use more epochs"
        if landed is not None and landed >= 1:
            # Nothing held it back at the end.
            return "the run ended before it got there; use more epochs"
        reason = "forgetting more would exceed the retain-loss budget"
        if kind == "class" and not unchanged:
            return f"{reason}; a longer run may help"
        if kind != "class" and not self._goal_is_unseen:
            reason += ". A retrained model also classifies most single records correctly"
        # γ = 1 always has the full budget.
        full = getattr(self.method, "gamma", 1.0) == 1 or getattr(self.method, "budget", None) == 1
        budget = "" if full else "allow the full budget (budget 1), "
        return (
            f"{reason}. A longer run may help; or {budget}set a target (until), or choose a point of a quick trace "
            f"(docs/quickstart.md)"
        )

    @property
    def relearned(self) -> str | None:
        """One line with advice if the run taught the model records that earlier requests deleted, else None."""
        found = self.already_forgotten
        if found is None or not found.relearned:
            return None
        if not getattr(self.method, "is_dialled", False):
            advice = "a method under the dial (CUP, or a method with gamma) holds them"
        else:
            advice = "use more epochs, or unlearn all requests together from the original model"
        return (
            f"the run re-learned records: {found}, towards {100 * found.retained:.2f} % of retained records; {advice}"
        )

    def point(self) -> Point:
        """The run as a point of a frontier.

        Raises:
            GradPivotError: If the scores cannot form a frontier.
        """
        if not self.scores.metrics:
            raise GradPivotError(
                f"{self.method.label} has no scores to compare: {self.scores}; pass a scorer that judges its samples"
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
