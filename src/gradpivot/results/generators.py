"""Generators compared: the tables, one per problem, what was forgotten and protocol. No torch.

:mod:`gradpivot.results.generator_tables` makes them from finished runs. In a table every series (``CUP``, ``SalUn``,
``SA``) has one set S of runs per seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import Frechet, GenerationScores
from gradpivot.results._estimate import Estimate, estimate
from gradpivot.results._json import plain, select
from gradpivot.results._sets import ComparedTable, ComparedTables, JudgedSeries, JudgedSet, forget_words
from gradpivot.results.dial import DialCurve
from gradpivot.results.frontier import Point
from gradpivot.results.paper import counterpart
from gradpivot.results.pareto import distance
from gradpivot.results.record import Record

__all__ = [
    "GENERATORS_SCHEMA", "GeneratorSeries", "GeneratorSet", "GeneratorTable", "Generators", "are_generators",
    "generation", "recognised_rho",
]  # fmt: skip

GENERATORS_SCHEMA = "gradpivot.generators/1"


def are_generators(records: Iterable[Record]) -> bool:
    """Whether the records are of generators; False for classifiers, and for none at all.

    Raises:
        GradPivotError: if some are of the one kind and some of the other.
    """
    kinds = [isinstance(record.point.scores, GenerationScores) for record in records]
    if any(kinds) and not all(kinds):
        raise GradPivotError(
            f"{sum(kinds)} records are of generators and {len(kinds) - sum(kinds)} of classifiers, which share no "
            f"scores; compare them apart, one problem at a time"
        )
    return any(kinds)


def generation(point: Point) -> GenerationScores:
    """The scores of a generator.

    Raises:
        GradPivotError: if it is a classifier.
    """
    if not isinstance(point.scores, GenerationScores):
        raise GradPivotError(f"{point.label} is a classifier, which makes no images; compare it in standings")
    return point.scores


@dataclass(frozen=True, kw_only=True)
class GeneratorSet(JudgedSet):
    """The set S of one series for one seed, judged, its runs in the order of the knob.

    Attributes:
        records: The runs as they were kept, with their pictures.
        chosen: Which run is nearest to the retrained model; without one which has the largest fidelity + UA.
        hypervolume: H(S) on (fidelity, UA), as a fraction.
        delta: Δ(S), as a fraction; None without a retrained model.
        seconds: Mean of the finite runs: one that diverged stopped early, and must not look fast. None if none is.
    """

    records: tuple[Record, ...]
    chosen: int
    hypervolume: float
    delta: float | None
    seconds: float | None

    @property
    def shown(self) -> Point:
        """The chosen run."""
        return self.frontier.points[self.chosen]

    def delta_of(self, index: int) -> float | None:
        """The distance of one run to the retrained model on (fidelity, UA), as a fraction; None without one."""
        reference, metrics = self.frontier.reference, self.frontier.metrics
        if reference is None:
            return None
        return distance(self.frontier.points[index].scores.vector(metrics), reference.vector(metrics))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary; pictures and telemetry stay in the records."""
        points: list[dict[str, Any]] = plain(self.frontier.points)
        return {
            **select(self, "seed", "chosen", "hypervolume", "delta", "seconds"),
            "points": [{name: value for name, value in point.items() if name != "history"} for point in points],
        }


@dataclass(frozen=True, kw_only=True)
class GeneratorSeries(JudgedSeries[GeneratorSet]):
    """A row of a table.

    Attributes:
        hypervolume: H over the whole sets.
        delta: Δ over the whole sets that have a reference.
        seconds: Time a run over the whole sets.
        cup_ratio: Time a run over CUP's on the seeds that both have.
    """

    hypervolume: Estimate | None
    delta: Estimate | None
    seconds: Estimate | None
    cup_ratio: float | None = None

    def shown(self, metric: str) -> Estimate | None:
        """``ua``, ``ra`` or ``fidelity`` of each whole set's chosen run, over the sets; None if one diverged."""
        if any(s.shown.diverged for s in self.whole):
            return None
        return estimate(float(getattr(generation(s.shown), metric)) for s in self.whole)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary, fractions and seconds, with every run."""
        return {
            **select(self, "name", "role", "method", "runs", "diverged"),
            **select(self, "hypervolume", "delta", "seconds", "cup_ratio"),
            "dials": [_dial_dict(dial) for dial in self.dials],
            "sets": plain(self.sets),
        }


@dataclass(frozen=True, kw_only=True)
class GeneratorTable(ComparedTable[GeneratorSeries]):
    """The series of one problem, what was forgotten and protocol, CUP first.

    Attributes:
        forget: What was forgotten, for people: the class ``3``, the classes ``3,5``.
        forgotten: The forgotten classes.
    """

    forget: str
    forgotten: tuple[int, ...]

    @property
    def what(self) -> str:
        """What was forgotten: ``class 3``."""
        return forget_words(self.kind, self.forget)

    @property
    def finite(self) -> list[GenerationScores]:
        """The scores of all models that did not diverge, the original's first."""
        points = (p for row in self.rows for s in row.sets for p in s.frontier.points)
        return [generation(p) for p in points if not p.diverged]

    @property
    def distances(self) -> list[Frechet]:
        """One of each kind of Fréchet distance, by features and numbers of images; first what H and Δ are by."""
        kinds = {(f.features, f.n, f.n_reference): f for scores in self.finite for f in scores.frechet}
        firsts = {scores.frechet[0].features for scores in self.finite if scores.frechet}
        return sorted(kinds.values(), key=lambda f: (f.features not in firsts, f.features, f.n, f.n_reference))

    @property
    def dataset(self) -> str | None:
        """The paper's dataset that the problem is on, or None: its values are context then."""
        return counterpart(self.problem, "generation")

    def original_at(self, seed: int) -> Record | None:
        """The original model of a seed."""
        return _record_at(self.original, seed)

    def retrained_at(self, seed: int) -> Record | None:
        """The retrained model of a seed."""
        return _record_at(self.retrained, seed)

    def kept_change(self, row: GeneratorSeries) -> Estimate | None:
        """RA of each whole set's chosen run − RA of the original of the same seed, over the sets; None if unknown."""
        pairs = [(s.shown, self.original_at(s.seed)) for s in row.whole]
        changes = [
            generation(point).ra - generation(original.point).ra
            for point, original in pairs
            if original and not original.point.diverged and not point.diverged
        ]
        return estimate(changes) if len(changes) == len(pairs) else None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary; pictures stay in the records."""
        return {
            **select(self, "problem", "kind", "forget", "protocol", "forgotten", "seeds", "notes"),
            "rows": [{**row.to_dict(), "kept_change": plain(self.kept_change(row))} for row in self.rows],
        }


@dataclass(frozen=True, kw_only=True)
class Generators(ComparedTables[GeneratorTable]):
    """All tables, by problem, what was forgotten and protocol."""

    schema = GENERATORS_SCHEMA


def recognised_rho(dial: DialCurve) -> Estimate | None:
    """Spearman's ρ of γ and the share of forgotten-class images that is still recognised, 1 − UA: −1 is even.

    Ranks of 1 − UA are those of UA turned round, so that it is −ρ(γ, UA).
    """
    rho = dial.rho
    if rho is None:
        return None
    low, high = (None if end is None else 0.0 - end for end in (rho.high, rho.low))
    return Estimate(mean=0.0 - rho.mean, std=rho.std, n=rho.n, low=low, high=high)


def _dial_dict(dial: DialCurve) -> dict[str, Any]:
    return {
        **select(dial, "knob", "others", "values"),
        "spearman_recognised": plain(recognised_rho(dial)),
        "jump": plain(dial.jump),
    }


def _record_at(row: GeneratorSeries | None, seed: int) -> Record | None:
    sets = row.sets if row else ()
    return next((s.records[0] for s in sets if s.seed == seed), None)
