"""Series: the runs of one method on each (class, seed), with measures per set and their means. No torch.

H and Δ are computed per set and then averaged, because scores averaged over seeds do not belong to any model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import all_metrics, scored_metrics, standing_metrics
from gradpivot.results._estimate import Estimate, estimate
from gradpivot.results._json import plain, select
from gradpivot.results._sets import JudgedSeries, JudgedSet, Place, Sets, forget_words, place_order, whole_sets
from gradpivot.results.dial import dials
from gradpivot.results.frontier import Frontier, Point
from gradpivot.results.pareto import hypervolume
from gradpivot.results.record import Role

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Flags = NDArray[np.bool_]

__all__ = ["Measure", "Series", "SolutionSet", "gather", "measures"]

SET_MEASURES = (
    "delta", "delta_svc", "hypervolume", "hypervolume_svc", "hypervolume_without_mia", "seconds", "space_seconds",
)  # fmt: skip


def measures(kind: str = "class") -> tuple[str, ...]:
    """Names of the measures of a set: scores of the shown run, Δ, H, mean time per run and total time.

    The mean time leaves out diverged runs, which stopped early.
    """
    return (*(metric.name for metric in scored_metrics(kind)), *SET_MEASURES)


def axes(clean: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Metrics of H and Δ by suffix: ``clean`` (the determined ones), with the paper's SVC, and without an attack.

    With the SVC, all of them, because that is the paper's procedure.
    """
    variants = {metric.variant_of: metric.name for metric in reversed(all_metrics()) if metric.variant_of}
    return {
        "": clean,
        "_svc": tuple(variants.get(name, name) for name in standing_metrics()),
        "_without_mia": standing_metrics(attacks=False),
    }


@dataclass(frozen=True, kw_only=True)
class SolutionSet(JudgedSet):
    """The set S of one series for one (forget, seed), with its measures.

    Attributes:
        shown: The run closest to the retrained model, as in the paper's tables; without one, the run with the largest
            sum of scores.
        values: The :func:`measures`; None if unknown.
        retrain_seconds: Training time of the retrained model, or None.
        undetermined: Number of finite runs on which the SVC is ill-posed.
    """

    shown: Point | None
    values: Mapping[str, float | None]
    retrain_seconds: float | None
    undetermined: int


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One measure of a series over its sets.

    Attributes:
        over_sets: Over all (forget, seed) sets.
        over_seeds: Over seeds, after averaging over forget sets.
        std_forget: Standard deviation of the means per class, in brackets in the paper's Table 1.
    """

    over_sets: Estimate
    over_seeds: Estimate
    std_forget: float | None

    @property
    def bracket(self) -> float | None:
        """The number in brackets in the paper: the standard deviation over classes, or over seeds for one class."""
        return self.over_sets.std if self.std_forget is None else self.std_forget

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return {**self.over_sets.to_dict(), "std_forget": self.std_forget, "over_seeds": self.over_seeds.to_dict()}


@dataclass(frozen=True, kw_only=True)
class Series(JudgedSeries[SolutionSet]):
    """A row of a table.

    Attributes:
        measures: The :func:`measures` over the complete sets, or None.
        classes: The same over seeds, for each forget set.
        missing: The (forget, seed) that only other series of the table have.
        retrain_ratio: Time per finite run relative to retraining, on the complete sets that have both.
        space_ratio: The same for the total time of a set, including diverged runs.
    """

    measures: Mapping[str, Measure | None]
    classes: Mapping[str, Mapping[str, Estimate | None]]
    missing: tuple[Place, ...] = ()
    retrain_ratio: float | None = None
    space_ratio: float | None = None

    @property
    def undetermined(self) -> float | None:
        """Share of finite runs on which the SVC is ill-posed; None if all runs diverged."""
        finite = self.runs - self.diverged
        return sum(s.undetermined for s in self.sets) / finite if finite else None

    def by_place(self, measure: str) -> dict[Place, float]:
        """The measure on each complete set, where known."""
        values = ((s.place, s.values[measure]) for s in self.whole)
        return {place: value for place, value in values if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary, in fractions and seconds."""
        return {
            **select(self, "name", "role", "method", "runs"),
            "runs_a_set": self.largest,
            "diverged": self.diverged,
            "svc_undetermined": self.undetermined,
            **select(self, "retrain_ratio", "space_ratio", "measures", "classes", "missing"),
            "incomplete": [{"forget": f, "seed": s, "runs": n, "of": self.largest} for (f, s), n in self.incomplete],
            "dials": plain(self.dials),
            "sets": {
                **{name: [getattr(s, name) for s in self.sets] for name in ("forget", "seed", "runs")},
                "whole": [s.runs == self.largest for s in self.sets],
                "diverged": [s.diverged for s in self.sets],
                **{name: [s.values[name] for s in self.sets] for name in self.measures},
            },
        }


def gather(
    name: str,
    role: Role,
    kind: str,
    runs: Sets,
    references: Mapping[Place, Point],
    places: set[Place],
    metrics: tuple[str, ...],
) -> Series:
    """Create a series, each set with the retrained model of its place as the reference, and H and Δ by ``metrics``.

    Raises:
        GradPivotError: If a run did not diverge but has a score that is not finite.
    """
    ordered = sorted(runs, key=place_order)
    method = runs[ordered[0]][0].method
    sets = tuple(
        _evaluate_set(place, name, method, kind, [r.point for r in runs[place]], references.get(place), metrics)
        for place in ordered
    )
    whole = whole_sets(sets)
    return Series(
        name=name, role=role, method=method, sets=sets,
        measures={m: _measure(whole, m) for m in measures(kind)},
        classes=_classes(whole, measures(kind)),
        missing=tuple(sorted(places - set(runs), key=place_order)),
        dials=tuple(dials([s.frontier.points for s in whole], kind=kind)) if role == "run" else (),
        retrain_ratio=_retrain_ratio(whole, "seconds"), space_ratio=_retrain_ratio(whole, "space_seconds"),
    )  # fmt: skip


def _evaluate_set(
    place: Place,
    name: str,
    method: str,
    kind: str,
    points: Sequence[Point],
    reference: Point | None,
    metrics: tuple[str, ...],
) -> SolutionSet:
    """Compute H, Δ, the shown run and the times of one set."""
    import numpy as np

    spaces = axes(metrics)
    every = tuple(dict.fromkeys(name for names in (standing_metrics(), *spaces.values()) for name in names))
    columns = {end: [every.index(name) for name in names] for end, names in spaces.items()}
    raw = np.array([p.scores.vector(every) for p in points])
    lost = np.array([p.diverged is not None for p in points])
    if not np.isfinite(raw[~lost]).all():
        raise GradPivotError(
            f"{name}, {forget_words(kind, place[0])}, seed {place[1]}: a run did not diverge but has a score that "
            f"is not a number; rerun it"
        )
    raw[lost] = 0.0
    ideal = reference.scores if reference and not reference.diverged else None
    frontier = Frontier(name=name, method=method, points=points, reference=ideal, kind=kind)
    judged = kind == "class" or ideal is not None
    vectors = raw if kind == "class" or not judged else np.array(frontier.vectors(every))
    gaps = None if ideal is None else raw - ideal.vector(every)
    distances = {f"delta{end}": None if gaps is None else _norms(gaps[:, columns[end]]) for end in ("", "_svc")}
    shown = _shown_index(raw[:, columns[""]], lost, distances["delta"]) if judged else None
    finite = [p.seconds for p in points if p.diverged is None]
    values: dict[str, float | None] = {
        **{
            metric.name: _value(points[shown], metric.name) if shown is not None else None
            for metric in scored_metrics(kind)
        },
        **{m: float(raw[shown, i]) for i, m in enumerate(every) if shown is not None},
        **{m: None if lengths is None else float(lengths.min()) for m, lengths in distances.items()},
        **{f"hypervolume{end}": hypervolume(vectors[:, some]) if judged else None for end, some in columns.items()},
        "seconds": math.fsum(finite) / len(finite) if finite else None,
        "space_seconds": math.fsum(p.seconds for p in points),
    }
    return SolutionSet(
        forget=place[0], seed=place[1], frontier=frontier, values=values,
        shown=points[shown] if shown is not None else None,
        retrain_seconds=reference.seconds if reference else None,
        undetermined=sum(not p.classification.mia_svc_determined for p in points if not p.diverged),
    )  # fmt: skip


def _value(point: Point, metric: str) -> float | None:
    """A score of a run; None if the run diverged or the metric was not measured."""
    value = float(getattr(point.scores, metric))
    return value if math.isfinite(value) and not point.diverged else None


def _shown_index(raw: Matrix, lost: Flags, distances: Matrix | None) -> int:
    """Index of the run closest to the retrained model, else of the largest sum. Ties go to finite runs, then by key."""
    import numpy as np

    cost = -raw.sum(axis=1) if distances is None else distances
    return int(np.lexsort((lost, cost))[0])


def _norms(gaps: Matrix) -> Matrix:
    import numpy as np

    lengths: Matrix = np.sqrt(np.einsum("ij,ij->i", gaps, gaps))
    return lengths


def _measure(sets: Sequence[SolutionSet], name: str) -> Measure | None:
    over_sets = estimate(s.values[name] for s in sets)
    over_seeds = estimate(_means((s.seed, s.values[name]) for s in sets))
    if over_sets is None or over_seeds is None:
        return None
    classes = estimate(_means((s.forget, s.values[name]) for s in sets))
    return Measure(over_sets=over_sets, over_seeds=over_seeds, std_forget=classes.std if classes else None)


def _means(values: Iterable[tuple[Any, float | None]]) -> list[float]:
    """The mean of each group."""
    groups: dict[Any, list[float]] = {}
    for group, value in values:
        if value is not None:
            groups.setdefault(group, []).append(value)
    return [math.fsum(group) / len(group) for group in groups.values()]


def _classes(sets: Sequence[SolutionSet], names: Sequence[str]) -> dict[str, dict[str, Estimate | None]]:
    groups: dict[str, list[SolutionSet]] = {}
    for s in sets:
        groups.setdefault(s.forget, []).append(s)
    return {forget: {m: estimate(s.values[m] for s in group) for m in names} for forget, group in groups.items()}


def _retrain_ratio(sets: Sequence[SolutionSet], measure: str) -> float | None:
    known = ((s.values[measure], s.retrain_seconds) for s in sets)
    both = [(run, retrain) for run, retrain in known if run is not None and retrain]
    return math.fsum(run for run, _ in both) / math.fsum(retrain for _, retrain in both) if both else None
