"""A series: what one method gave on each (class, seed), judged set by set and summed up. No torch.

H and Δ are computed per set and then averaged; a setting averaged over seeds is no real model.
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


def measures() -> tuple[str, ...]:
    """What is measured on every set: the shown run's scores, the set's distance and volume, time a run and in all.

    Time a run is over finite runs: one that diverged stopped early, and must not look fast.
    """
    return (*(metric.name for metric in scored_metrics()), *SET_MEASURES)


def axes() -> dict[str, tuple[str, ...]]:
    """What H and Δ are taken on, by the end of their names: the clean MIA, the paper's SVC in its place, no attack."""
    clean = standing_metrics()
    variants = {metric.variant_of: metric.name for metric in reversed(all_metrics()) if metric.variant_of}
    return {
        "": clean,
        "_svc": tuple(variants.get(name, name) for name in clean),
        "_without_mia": standing_metrics(attacks=False),
    }


@dataclass(frozen=True, kw_only=True)
class SolutionSet(JudgedSet):
    """The set S of one series for one (forget, seed), judged.

    Attributes:
        shown: The run nearest to the retrained model (the paper's row); without one the largest sum of scores.
        values: Each of :func:`measures`; None where it cannot be judged.
        retrain_seconds: How long the reference took, or None.
        undetermined: On how many finite runs the SVC was undetermined.
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
        over_seeds: Averaged over what was forgotten first: one value a seed.
        std_forget: Standard deviation of the means per forgotten class, the bracket of the paper's Table 1.
    """

    over_sets: Estimate
    over_seeds: Estimate
    std_forget: float | None

    @property
    def bracket(self) -> float | None:
        """What the paper prints in brackets: the spread over classes; for one class that over seeds."""
        return self.over_sets.std if self.std_forget is None else self.std_forget

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary: the sets' estimate, with the other two views in it."""
        return {**self.over_sets.to_dict(), "std_forget": self.std_forget, "over_seeds": self.over_seeds.to_dict()}


@dataclass(frozen=True, kw_only=True)
class Series(JudgedSeries[SolutionSet]):
    """A row of a table.

    Attributes:
        measures: Each of :func:`measures` over the whole sets, or None.
        classes: The same by what was forgotten, over seeds.
        missing: The (forget, seed) that other series of the table have.
        retrain_ratio: Seconds a finite run over the seconds of retraining, on the whole sets that have both.
        space_ratio: The same for all runs of a set together, diverged ones included.
    """

    measures: Mapping[str, Measure | None]
    classes: Mapping[str, Mapping[str, Estimate | None]]
    missing: tuple[Place, ...] = ()
    retrain_ratio: float | None = None
    space_ratio: float | None = None

    @property
    def undetermined(self) -> float | None:
        """The share of finite runs on which the SVC's MIA is noise; None if no run is finite."""
        alive = self.runs - self.diverged
        return sum(s.undetermined for s in self.sets) / alive if alive else None

    def by_place(self, measure: str) -> dict[Place, float]:
        """The measure on each whole set on which it is known."""
        values = ((s.place, s.values[measure]) for s in self.whole)
        return {place: value for place, value in values if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary, fractions and seconds."""
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
                **{name: [s.values[name] for s in self.sets] for name in measures()},
            },
        }


def gather(
    name: str, role: Role, kind: str, runs: Sets, references: Mapping[Place, Point], places: set[Place]
) -> Series:
    """Judge the sets of one series, each against the retrained model of its place.

    Raises:
        GradPivotError: if a score of a run that did not diverge is not finite.
    """
    ordered = sorted(runs, key=place_order)
    method = runs[ordered[0]][0].method
    sets = tuple(
        _judge(place, name, method, kind, [r.point for r in runs[place]], references.get(place)) for place in ordered
    )
    whole = whole_sets(sets)
    return Series(
        name=name, role=role, method=method, sets=sets,
        measures={m: _measure(whole, m) for m in measures()},
        classes=_classes(whole),
        missing=tuple(sorted(places - set(runs), key=place_order)),
        dials=tuple(dials([s.frontier.points for s in whole])) if role == "run" else (),
        retrain_ratio=_retrain_ratio(whole, "seconds"), space_ratio=_retrain_ratio(whole, "space_seconds"),
    )  # fmt: skip


def _judge(
    place: Place, name: str, method: str, kind: str, points: Sequence[Point], reference: Point | None
) -> SolutionSet:
    """H, Δ, the shown run and the clock of one set."""
    import numpy as np

    spaces = axes()
    every = tuple(dict.fromkeys(name for names in spaces.values() for name in names))
    columns = {end: [every.index(name) for name in names] for end, names in spaces.items()}
    raw = np.array([p.scores.vector(every) for p in points])
    lost = np.array([p.diverged is not None for p in points])
    if not np.isfinite(raw[~lost]).all():
        raise GradPivotError(
            f"{name}, {forget_words(kind, place[0])}, seed {place[1]}: a run that did not diverge has a score that "
            f"is not a number; run it again"
        )
    raw[lost] = 0.0
    ideal = reference.scores if reference and not reference.diverged else None
    frontier = Frontier(name=name, method=method, points=points, reference=ideal, kind=kind)
    judged = kind == "class" or ideal is not None
    vectors = raw if kind == "class" or not judged else np.array(frontier.vectors(every))
    gaps = None if ideal is None else raw - ideal.vector(every)
    far = {f"delta{end}": None if gaps is None else _lengths(gaps[:, columns[end]]) for end in ("", "_svc")}
    shown = _shown(raw[:, columns[""]], lost, far["delta"]) if judged else None
    finite = [p.seconds for p in points if p.diverged is None]
    values: dict[str, float | None] = {
        **{
            metric.name: _value(points[shown], metric.name) if shown is not None else None
            for metric in scored_metrics()
        },
        **{m: float(raw[shown, i]) for i, m in enumerate(every) if shown is not None},
        **{m: None if lengths is None else float(lengths.min()) for m, lengths in far.items()},
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
    """What a run scored; None where it diverged or was not measured by that."""
    value = float(getattr(point.scores, metric))
    return value if math.isfinite(value) and not point.diverged else None


def _shown(raw: Matrix, lost: Flags, distances: Matrix | None) -> int:
    """The paper's row: nearest to the retrained model, else the largest sum; at a tie a finite run, then by key."""
    import numpy as np

    cost = -raw.sum(axis=1) if distances is None else distances
    return int(np.lexsort((lost, cost))[0])


def _lengths(gaps: Matrix) -> Matrix:
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


def _classes(sets: Sequence[SolutionSet]) -> dict[str, dict[str, Estimate | None]]:
    groups: dict[str, list[SolutionSet]] = {}
    for s in sets:
        groups.setdefault(s.forget, []).append(s)
    return {forget: {m: estimate(s.values[m] for s in group) for m in measures()} for forget, group in groups.items()}


def _retrain_ratio(sets: Sequence[SolutionSet], measure: str) -> float | None:
    known = ((s.values[measure], s.retrain_seconds) for s in sets)
    both = [(run, again) for run, again in known if run is not None and again]
    return math.fsum(run for run, _ in both) / math.fsum(again for _, again in both) if both else None
