"""A frontier: the models one method gives over its settings, as points with scores.

Everything here is data. Drawing is :mod:`gradpivot.report`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import GenerationScores, LossScores, Scored, Scores, find_metric, standing_metrics
from gradpivot.results._json import plain, select
from gradpivot.results.pareto import distance, hypervolume, nondominated
from gradpivot.results.selection import check_metric, parse_conditions

__all__ = ["Frontier", "Point", "read_scores", "varying"]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One unlearned model: what was asked for and what came out.

    Attributes:
        label: The run's name, such as ``CUP(gamma=0.3)``.
        settings: The method's full configuration.
        scores: What it scored, as a classifier or as a generator; zeros when it diverged.
        knob: The value of the setting that the frontier walks along (γ for CUP), or None.
        seconds: Wall-clock of the unlearning call, preparation included.
        diverged: None, or ``{"step": …, "reason": …}``.
        history: Telemetry by step: columns of equal length (``step``, ``cosine``, …).
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
            GradPivotError: if it is a generator.
        """
        if not isinstance(self.scores, Scores):
            raise GradPivotError(
                f"{self.label} is a generator, which has no RA, UA, TA and MIA; compare it with other generators"
            )
        return self.scores

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return select(self, *self.__dataclass_fields__)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Point:
        """Read back what :meth:`to_dict` wrote."""
        knob = values["knob"]
        return cls(
            **{name: values[name] for name in ("label", "settings", "diverged", "history")},
            scores=read_scores(values["scores"]),
            knob=None if knob is None else float(knob),
            seconds=float(values["seconds"]),
        )


def varying(points: Sequence[Point], *besides: str | None) -> list[str]:
    """The settings in which the points differ, besides those named."""
    names = dict.fromkeys(name for point in points for name in point.settings if name not in besides)
    return [name for name in names if len({repr(point.settings.get(name)) for point in points}) > 1]


def read_scores(values: Mapping[str, Any]) -> Scored:
    """Read back the dictionary of any of our scores."""
    # Only a generator's scores say what its images were called, or losses.
    if "called" in values:
        return GenerationScores.from_dict(values)
    return LossScores.from_dict(values) if "forget_loss" in values else Scores.from_dict(dict(values))


@dataclass(frozen=True, kw_only=True, repr=False)
class Frontier:
    """The set S of models a method produced over its space, and what the set is worth.

    Attributes:
        name: What tables and legends call it.
        method: The method's registered name, or None for the original model.
        knob: Which setting the points walk along (``gamma``, ``forget_weight``, ``lr``).
        points: One per run, in the order of the knob.
        reference: The retrained model's scores, if there is one.
        kind: What was forgotten: ``class``, ``random``, ``index`` or ``predicate``.
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
        """What H and Δ are taken on unless said otherwise: RA, UA, TA and MIA; for generators fidelity and UA."""
        return self.points[0].scores.metrics if self.points else standing_metrics()

    def vectors(self, metrics: tuple[str, ...] | None = None) -> list[tuple[float, ...]]:
        """The points as vectors in which higher is better.

        Class-wise: the scores themselves. Otherwise more UA or MIA is not better, the retrained model's
        value is the ideal, and each component is ``1 − |A(retrain) − A(θ)|``; a diverged run stays zero.
        """
        metrics = metrics or self.metrics
        if self.kind == "class":
            return [point.scores.vector(metrics) for point in self.points]
        if self.reference is None:
            raise GradPivotError(
                f"forgetting by {self.kind!r} is judged by its gap to a retrained model; give a reference "
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
        """H(S) as a fraction: the volume the points dominate above zero, exact."""
        return hypervolume(self.vectors(metrics))

    def distance(self, reference: Scored | None = None, metrics: tuple[str, ...] | None = None) -> float:
        """Δ(S) = min ‖A(retrain) − A(θ)‖₂ over the points, as a fraction.

        Raises:
            GradPivotError: if there is no reference.
        """
        target = reference or self.reference
        if target is None:
            raise GradPivotError("Δ needs a reference: run Retrain, or pass its scores")
        if not self.points:
            raise GradPivotError(f"{self.name} has no points to measure a distance from")
        metrics = metrics or self.metrics
        ideal = target.vector(metrics)
        return min(distance(point.scores.vector(metrics), ideal) for point in self.points)

    def nondominated(self, metrics: tuple[str, ...] | None = None) -> list[Point]:
        """The points that no other point of this frontier beats; a diverged one never counts."""
        finite = replace(self, points=[p for p in self.points if not p.diverged])
        return [p for p, k in zip(finite.points, nondominated(finite.vectors(metrics)), strict=True) if k]

    def pick(self, condition: str | Mapping[str, float], best: str = "ra") -> Point:
        """The point that meets ``condition`` and is best in ``best``: ``pick("UA>=95", best="RA")``.

        UA and RA are measured on training data. Choosing by TA or MIA looks at the test set, so the chosen
        point's TA and MIA are then optimistic. Ties go to the first point along the knob.

        Raises:
            GradPivotError: if no point meets it, naming the nearest one.
        """
        conditions = parse_conditions(condition)
        name = check_metric(best)
        finite = [p for p in self.points if not p.diverged]
        met = [p for p in finite if all(c.holds(p.scores) for c in conditions)]
        if met:
            sign = 1 if find_metric(name).is_higher else -1
            return max(met, key=lambda p: sign * float(getattr(p.scores, name)))
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
            f"Ask for less, or trace more settings"
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary, with H and Δ as they stand."""
        judged = self.kind == "class" or self.reference is not None
        return {
            **select(self, "name", "method", "knob", "kind", "reference"),
            "hypervolume": self.hypervolume() if judged else None,
            "hypervolume_without_mia": self.hypervolume(standing_metrics(attacks=False))
            if judged and self.metrics == standing_metrics()
            else None,
            "delta": self.distance() if self.reference and self.points else None,
            "points": plain(self.points),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Frontier:
        """Read back what :meth:`to_dict` wrote (H and Δ are computed again, never trusted)."""
        reference = values["reference"]
        return cls(
            **{name: values[name] for name in ("name", "method", "knob", "kind")},
            reference=read_scores(reference) if reference else None,
            points=[Point.from_dict(point) for point in values["points"]],
        )
