"""Frontiers: the scored runs of one method over its settings. :mod:`gradpivot.report` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import (  # fmt: skip
    GenerationScores,
    LossScores,
    Scored,
    Scores,
    find_metric,
    scored_metrics,
    standing_metrics,
)
from gradpivot.results._json import plain, select
from gradpivot.results.pareto import distance, hypervolume, nondominated
from gradpivot.results.selection import check_metric, parse_conditions
from gradpivot.runtime import Number, checked

__all__ = ["Frontier", "Point", "compared_metrics", "determined_metrics", "read_scores", "varying"]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One run: its settings and scores.

    Attributes:
        label: Name of the run, such as ``CUP(gamma=0.3)``.
        settings: Full configuration of the method.
        scores: Scores of a classifier or a generator; zeros if the run diverged.
        knob: Value of the setting that varies along the frontier (γ for CUP), or None.
        seconds: Unlearning time, including preparation.
        diverged: ``{"step": …, "reason": …}`` if the run diverged, else None.
        history: Telemetry, one list per column (``step``, ``cosine``, …), one entry per step.
    """

    label: str
    settings: Mapping[str, Any]
    scores: Scored
    knob: float | None = None
    seconds: float = 0.0
    diverged: Mapping[str, Any] | None = None
    history: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    @property
    def classification(self) -> Scores:
        """The scores of a classifier.

        Raises:
            GradPivotError: If the model is a generator.
        """
        if not isinstance(self.scores, Scores):
            raise GradPivotError(
                f"{self.label} is a generator, which has no RA, UA, TA or MIA; compare it with other generators"
            )
        return self.scores

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return select(self, *self.__dataclass_fields__)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Point:
        """Inverse of :meth:`to_dict`.

        Raises:
            ValueError, KeyError, TypeError: If a value is missing, of another type or out of range.
        """
        checked(values, label=str, settings=Mapping, scores=Mapping, knob=Number | None, seconds=Number,
                diverged=Mapping | None, history=Mapping)  # fmt: skip
        if values["diverged"] is not None:
            checked(values["diverged"], step=int, reason=str)
        checked(values["history"], **dict.fromkeys(values["history"], list))
        knob = values["knob"]
        return cls(
            **{name: values[name] for name in ("label", "settings", "diverged", "history")},
            scores=read_scores(values["scores"]),
            knob=None if knob is None else float(knob),
            seconds=float(values["seconds"]),
        )


def varying(points: Sequence[Point], *besides: str | None) -> list[str]:
    """Names of the settings in which the points differ, except ``besides``."""
    names = dict.fromkeys(name for point in points for name in point.settings if name not in besides)
    return [name for name in names if len({repr(point.settings.get(name)) for point in points}) > 1]


def compared_metrics(scores: Scored, kind: str) -> tuple[str, ...]:
    """The metrics of H and Δ for such scores of models that forgot this kind of split."""
    return standing_metrics(kind) if isinstance(scores, Scores) else scores.metrics


def determined_metrics(metrics: Sequence[str], *references: Scored | None) -> tuple[str, ...]:
    """The metrics without those that are undetermined for a reference, which H, Δ and rankings leave out.

    An attack is undetermined if members and non-members look alike to it. None, and references that do not say, count
    as determined.
    """
    return tuple(m for m in metrics if all(getattr(scores, f"{m}_determined", True) for scores in references))


def read_scores(values: Mapping[str, Any]) -> Scored:
    """Create scores of the right class from their dictionary."""
    # Only scores of generators have "called" or losses.
    if "called" in values:
        return GenerationScores.from_dict(values)
    return LossScores.from_dict(values) if "forget_loss" in values else Scores.from_dict(dict(values))


@dataclass(frozen=True, kw_only=True, repr=False)
class Frontier:
    """The set S of runs of a method over its settings.

    Attributes:
        name: Name in tables and legends.
        method: Registered name of the method, or None for the original model.
        knob: The setting that varies along the frontier (``gamma``, ``forget_weight``, ``lr``).
        points: One per run, sorted by the knob.
        reference: Scores of the retrained model, or None.
        kind: Kind of split: ``class``, ``random``, ``index`` or ``predicate``.
    """

    name: str
    method: str | None
    points: Sequence[Point]
    knob: str | None = None
    reference: Scored | None = None
    kind: str = "class"

    def __repr__(self) -> str:
        along = f" along {self.knob}" if self.knob else ""
        return f"{type(self).__name__}({self.name}: {len(self.points)} points{along})"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Default metrics of H and Δ: RA, UA, TA and, for classes and if determined, MIA; else fidelity and UA."""
        return determined_metrics(self._every_metric, self.reference)

    @property
    def _every_metric(self) -> tuple[str, ...]:
        return compared_metrics(self.points[0].scores, self.kind) if self.points else standing_metrics(self.kind)

    def vectors(self, metrics: tuple[str, ...] | None = None) -> list[tuple[float, ...]]:
        """The points as vectors in which higher is better.

        For class-wise forgetting these are the scores. Otherwise a higher UA is not better: the ideal is the
        retrained model, and each component is ``1 − |A(retrain) − A(θ)|``. Diverged runs are zero.

        Raises:
            GradPivotError: If the split is not class-wise and there is no reference.
        """
        metrics = metrics or self.metrics
        if self.kind == "class":
            return [point.scores.vector(metrics) for point in self.points]
        if self.reference is None:
            raise GradPivotError(
                f"forgetting by {self.kind!r} is judged by its gap to a retrained model; pass a reference "
                f"(run Retrain, or pass its scores)"
            )
        ideal = self.reference.vector(metrics)
        return [
            tuple(0.0 for _ in metrics)
            if point.diverged
            else tuple(1 - abs(i - s) for i, s in zip(ideal, point.scores.vector(metrics), strict=True))
            for point in self.points
        ]

    def hypervolume(self, metrics: tuple[str, ...] | None = None) -> float:
        """H(S), the exact volume dominated by the points, as a fraction."""
        return hypervolume(self.vectors(metrics))

    def distance(self, reference: Scored | None = None, metrics: tuple[str, ...] | None = None) -> float:
        """Δ(S) = min ‖A(retrain) − A(θ)‖₂ over the points, as a fraction.

        Raises:
            GradPivotError: If there is no reference or no point.
        """
        target = reference or self.reference
        if target is None:
            raise GradPivotError("Δ needs a reference: run Retrain, or pass its scores")
        if not self.points:
            raise GradPivotError(f"{self.name} has no points, so Δ is undefined")
        metrics = metrics or determined_metrics(self._every_metric, target)
        ideal = target.vector(metrics)
        return min(distance(point.scores.vector(metrics), ideal) for point in self.points)

    def nondominated(self, metrics: tuple[str, ...] | None = None) -> list[Point]:
        """The Pareto-optimal points, without diverged runs."""
        finite = replace(self, points=[p for p in self.points if not p.diverged])
        return [p for p, k in zip(finite.points, nondominated(finite.vectors(metrics)), strict=True) if k]

    def pick(self, condition: str | Mapping[str, float], best: str = "ra") -> Point:
        """The best point by metric ``best`` that meets ``condition``: ``pick("UA>=95", best="RA")``.

        UA and RA are measured on training data. Choosing by TA or MIA uses the test set, so the TA and MIA of the
        chosen point are then optimistic. Ties go to the first point along the knob.

        Raises:
            GradPivotError: If no point meets the condition.
        """
        known = [metric.name for metric in scored_metrics(self.kind)]
        conditions = parse_conditions(condition, known)
        name = check_metric(best, known)
        finite = [p for p in self.points if not p.diverged]
        met = [p for p in finite if all(c.holds(p.scores) for c in conditions)]
        if met:
            metric = find_metric(name)
            sign = 1 if metric.is_higher else -1
            return max(met, key=lambda p: sign * metric.folded(float(getattr(p.scores, name))))
        wanted = ", ".join(str(c) for c in conditions)
        if not finite:
            raise GradPivotError(f"no point of {self.name} is finite; lower lr or set max_norm")
        nearest = min(finite, key=lambda p: sum(c.miss(p.scores) for c in conditions))
        reached = ", ".join(
            f"{c.metric.upper()} {find_metric(c.metric).scale * getattr(nearest.scores, c.metric):.2f}"
            for c in conditions
        )
        raise GradPivotError(
            f"no point of {self.name} meets {wanted}; the nearest is {nearest.label} with {reached}. "
            f"Relax the condition, or trace more settings"
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary, including H and Δ."""
        judged = self.kind == "class" or self.reference is not None
        return {
            **select(self, "name", "method", "knob", "kind", "reference"),
            "hypervolume": self.hypervolume() if judged else None,
            "hypervolume_without_mia": self.hypervolume(standing_metrics(attacks=False))
            if judged and self._every_metric == standing_metrics(self.kind)
            else None,
            "delta": self.distance() if self.reference and self.points else None,
            "points": plain(self.points),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Frontier:
        """Inverse of :meth:`to_dict`. H and Δ are recomputed."""
        reference = values["reference"]
        return cls(
            **{name: values[name] for name in ("name", "method", "knob", "kind")},
            reference=read_scores(reference) if reference else None,
            points=[Point.from_dict(point) for point in values["points"]],
        )
