"""Comparison tables of generators, one per problem, forget set and protocol. No torch.

:mod:`gradpivot.results.generator_tables` creates them from finished runs. Each series of a table (``CUP``, ``SalUn``,
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
    """Whether the records are of generators; False for classifiers or no records.

    Raises:
        GradPivotError: If the records mix generators and classifiers.
    """
    kinds = [isinstance(record.point.scores, GenerationScores) for record in records]
    if any(kinds) and not all(kinds):
        raise GradPivotError(
            f"{sum(kinds)} records are from generators and {len(kinds) - sum(kinds)} from classifiers, which have "
            f"different scores; compare one problem at a time"
        )
    return any(kinds)


def generation(point: Point) -> GenerationScores:
    """The scores of a generator.

    Raises:
        GradPivotError: If the model is a classifier.
    """
    if not isinstance(point.scores, GenerationScores):
        raise GradPivotError(f"{point.label} is a classifier, not a generator; compare it with standings")
    return point.scores


@dataclass(frozen=True, kw_only=True)
class GeneratorSet(JudgedSet):
    """The set S of one series for one seed, with its measures and runs sorted by the knob.

    Attributes:
        records: The records of the runs, with their pictures.
        chosen: Index of the run closest to the retrained model; without one, of the largest fidelity + UA.
        hypervolume: H(S) on (fidelity, UA), as a fraction.
        delta: Δ(S), as a fraction; None without a retrained model.
        seconds: Mean time of the finite runs; None if all diverged.
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
        """Distance of a run to the retrained model on (fidelity, UA), as a fraction; None without one."""
        reference, metrics = self.frontier.reference, self.frontier.metrics
        if reference is None:
            return None
        return distance(self.frontier.points[index].scores.vector(metrics), reference.vector(metrics))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary without pictures and telemetry."""
        points: list[dict[str, Any]] = plain(self.frontier.points)
        return {
            **select(self, "seed", "chosen", "hypervolume", "delta", "seconds"),
            "points": [{name: value for name, value in point.items() if name != "history"} for point in points],
        }


@dataclass(frozen=True, kw_only=True)
class GeneratorSeries(JudgedSeries[GeneratorSet]):
    """A row of a table.

    Attributes:
        hypervolume: H over the complete sets.
        delta: Δ over the complete sets that have a reference.
        seconds: Time per run over the complete sets.
        cup_ratio: Time per run relative to CUP, on the seeds that both have.
    """

    hypervolume: Estimate | None
    delta: Estimate | None
    seconds: Estimate | None
    cup_ratio: float | None = None

    def shown(self, metric: str) -> Estimate | None:
        """Mean ``ua``, ``ra`` or ``fidelity`` of the chosen runs of complete sets; None if one diverged."""
        if any(s.shown.diverged for s in self.whole):
            return None
        return estimate(float(getattr(generation(s.shown), metric)) for s in self.whole)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary of all runs, in fractions and seconds."""
        return {
            **select(self, "name", "role", "method", "runs", "diverged"),
            **select(self, "hypervolume", "delta", "seconds", "cup_ratio"),
            "dials": [_dial_dict(dial) for dial in self.dials],
            "sets": plain(self.sets),
        }


@dataclass(frozen=True, kw_only=True)
class GeneratorTable(ComparedTable[GeneratorSeries]):
    """The series of one problem, forget set and protocol, CUP first.

    Attributes:
        forget: Readable forget set: class ``3``, classes ``3,5``.
        forgotten: The forgotten classes.
    """

    forget: str
    forgotten: tuple[int, ...]

    @property
    def what(self) -> str:
        """The forget set: ``class 3``."""
        return forget_words(self.kind, self.forget)

    @property
    def finite(self) -> list[GenerationScores]:
        """The scores of all models that did not diverge, the original first."""
        points = (p for row in self.rows for s in row.sets for p in s.frontier.points)
        return [generation(p) for p in points if not p.diverged]

    @property
    def distances(self) -> list[Frechet]:
        """One Fréchet distance per features and numbers of images, those that H and Δ use first."""
        kinds = {(f.features, f.n, f.n_reference): f for scores in self.finite for f in scores.frechet}
        firsts = {scores.frechet[0].features for scores in self.finite if scores.frechet}
        return sorted(kinds.values(), key=lambda f: (f.features not in firsts, f.features, f.n, f.n_reference))

    @property
    def dataset(self) -> str | None:
        """The paper's dataset of this problem; None if the paper does not have it."""
        return counterpart(self.problem, "generation")

    def original_at(self, seed: int) -> Record | None:
        """The original model of a seed."""
        return _record_at(self.original, seed)

    def retrained_at(self, seed: int) -> Record | None:
        """The retrained model of a seed."""
        return _record_at(self.retrained, seed)

    def kept_change(self, row: GeneratorSeries) -> Estimate | None:
        """Mean change in RA from the original to the chosen runs of complete sets; None if unknown."""
        pairs = [(s.shown, self.original_at(s.seed)) for s in row.whole]
        changes = [
            generation(point).ra - generation(original.point).ra
            for point, original in pairs
            if original and not original.point.diverged and not point.diverged
        ]
        return estimate(changes) if len(changes) == len(pairs) else None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary without pictures."""
        return {
            **select(self, "problem", "kind", "forget", "protocol", "forgotten", "seeds", "notes"),
            "rows": [{**row.to_dict(), "kept_change": plain(self.kept_change(row))} for row in self.rows],
        }


@dataclass(frozen=True, kw_only=True)
class Generators(ComparedTables[GeneratorTable]):
    """All tables, sorted by problem, forget set and protocol."""

    schema = GENERATORS_SCHEMA


def recognised_rho(dial: DialCurve) -> Estimate | None:
    """Spearman's ρ of γ and 1 − UA, the share of forgotten-class images still recognised. −1 is ideal.

    Equals −ρ(γ, UA).
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
