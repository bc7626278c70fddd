"""Generators compared: the tables, one per problem, what was forgotten and protocol. No torch.

:mod:`gradpivot.results.generator_tables` makes them from finished runs. In a table every series (``CUP``, ``SalUn``,
``SA``) has one set S of runs per seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import Frechet, GenerationScores
from gradpivot.results._estimate import Estimate, estimate
from gradpivot.results.dial import Dial
from gradpivot.results.frontier import Frontier, Point
from gradpivot.results.paper import counterpart
from gradpivot.results.pareto import distance
from gradpivot.results.record import Record, Role
from gradpivot.results.series import forget_words

__all__ = [
    "SCHEMA", "GeneratorSeries", "GeneratorSet", "GeneratorTable", "Generators", "are_generators", "generation",
    "recognised_rho", "whole_sets",
]  # fmt: skip

SCHEMA = "gradpivot.generators/1"


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
class GeneratorSet:
    """The set S of one series for one seed, judged.

    Attributes:
        seed: Of the original, the reference and the runs.
        frontier: The runs in the order of the knob, and their reference.
        records: The same runs as they were kept, with their pictures.
        chosen: Which run is nearest to the retrained model; without one which has the largest fidelity + UA.
        hypervolume: H(S) on (fidelity, UA), as a fraction.
        delta: Δ(S), as a fraction; None without a retrained model.
        seconds: Mean of the finite runs: one that diverged stopped early, and must not look fast. None if none is.
    """

    seed: int
    frontier: Frontier
    records: tuple[Record, ...]
    chosen: int
    hypervolume: float
    delta: float | None
    seconds: float | None

    @property
    def shown(self) -> Point:
        """The chosen run."""
        return self.frontier.points[self.chosen]

    @property
    def diverged(self) -> int:
        """How many runs diverged; they count as zeros."""
        return sum(point.diverged is not None for point in self.frontier.points)

    def delta_of(self, index: int) -> float | None:
        """The distance of one run to the retrained model on (fidelity, UA), as a fraction; None without one."""
        reference, metrics = self.frontier.reference, self.frontier.metrics
        if reference is None:
            return None
        return distance(self.frontier.points[index].scores.vector(metrics), reference.vector(metrics))


@dataclass(frozen=True, kw_only=True)
class GeneratorSeries:
    """A row of a table.

    Attributes:
        name: What tables call it.
        role: ``run`` for a method; ``original`` and ``retrained`` for the two models beside them.
        method: The method's registered name.
        sets: One per seed, in order.
        hypervolume: H over the whole sets.
        delta: Δ over the whole sets that have a reference.
        seconds: Time a run over the whole sets.
        dials: How evenly it follows γ, for each combination of its other settings.
        cup_ratio: Time a run over CUP's on the seeds that both have.
    """

    name: str
    role: Role
    method: str
    sets: tuple[GeneratorSet, ...]
    hypervolume: Estimate | None
    delta: Estimate | None
    seconds: Estimate | None
    dials: tuple[Dial, ...] = ()
    cup_ratio: float | None = None

    @property
    def whole(self) -> tuple[GeneratorSet, ...]:
        """The sets that averages rest on: those as large as the largest."""
        return whole_sets(self.sets)

    @property
    def largest(self) -> int:
        """The runs of its largest set."""
        return max(len(s.frontier.points) for s in self.sets)

    @property
    def runs(self) -> int:
        """Runs in all sets."""
        return sum(len(s.frontier.points) for s in self.sets)

    @property
    def diverged(self) -> int:
        """Diverged runs in all sets."""
        return sum(s.diverged for s in self.sets)

    def shown(self, metric: str) -> Estimate | None:
        """``ua``, ``ra`` or ``fidelity`` of each whole set's chosen run, over the sets; None if one diverged."""
        if any(s.shown.diverged for s in self.whole):
            return None
        return estimate(float(getattr(generation(s.shown), metric)) for s in self.whole)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary, fractions and seconds, with every run."""
        return {
            "name": self.name,
            "role": self.role,
            "method": self.method,
            "runs": self.runs,
            "diverged": self.diverged,
            "hypervolume": self.hypervolume and self.hypervolume.to_dict(),
            "delta": self.delta and self.delta.to_dict(),
            "seconds": self.seconds and self.seconds.to_dict(),
            "cup_ratio": self.cup_ratio,
            "dials": [_dial_dict(dial) for dial in self.dials],
            "sets": [_set_dict(s) for s in self.sets],
        }


@dataclass(frozen=True, kw_only=True)
class GeneratorTable:
    """The series of one problem, what was forgotten and protocol, side by side.

    Attributes:
        problem: The problem's name.
        kind: What was forgotten: ``class``.
        forget: The same for people: the class ``3``, the classes ``3,5``.
        protocol: ``paper``, ``clean`` or a recipe's own.
        forgotten: The forgotten classes.
        series: The methods, CUP first.
        original: The model before unlearning, if it was scored.
        retrained: The reference, if it was trained.
        notes: What is missing, doubled or not to be compared.
    """

    problem: str
    kind: str
    forget: str
    protocol: str
    forgotten: tuple[int, ...]
    series: tuple[GeneratorSeries, ...]
    original: GeneratorSeries | None = None
    retrained: GeneratorSeries | None = None
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """``mnist-ddpm, class 3, clean protocol``."""
        parts = (
            self.problem,
            forget_words(self.kind, self.forget),
            self.protocol and f"{self.protocol} protocol",
        )
        return ", ".join(part for part in parts if part)

    @property
    def rows(self) -> tuple[GeneratorSeries, ...]:
        """The original, the retrained model and the methods."""
        return (*(row for row in (self.original, self.retrained) if row), *self.series)

    @property
    def seeds(self) -> list[int]:
        """The seeds that some method was run on."""
        return sorted({s.seed for row in self.series for s in row.sets})

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
            "problem": self.problem,
            "kind": self.kind,
            "forget": self.forget,
            "protocol": self.protocol,
            "forgotten": list(self.forgotten),
            "seeds": self.seeds,
            "notes": list(self.notes),
            "rows": [
                {**row.to_dict(), "kept_change": change and change.to_dict()}
                for row in self.rows
                for change in [self.kept_change(row)]
            ],
        }


@dataclass(frozen=True, kw_only=True)
class Generators:
    """All tables.

    Attributes:
        tables: By problem, what was forgotten and protocol.
        notes: What concerns all of them, such as records that came twice.
        records: How many records they were made from.
    """

    tables: tuple[GeneratorTable, ...]
    notes: tuple[str, ...] = ()
    records: int = 0

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary with its schema version; fractions and seconds throughout."""
        return {
            "schema": SCHEMA,
            "records": self.records,
            "notes": list(self.notes),
            "tables": [table.to_dict() for table in self.tables],
        }


def recognised_rho(dial: Dial) -> Estimate | None:
    """Spearman's ρ of γ and the share of forgotten-class images that is still recognised, 1 − UA: −1 is even.

    Ranks of 1 − UA are those of UA turned round, so that it is −ρ(γ, UA).
    """
    rho = dial.rho
    if rho is None:
        return None
    low, high = (None if end is None else 0.0 - end for end in (rho.high, rho.low))
    return Estimate(mean=0.0 - rho.mean, std=rho.std, n=rho.n, low=low, high=high)


def _dial_dict(dial: Dial) -> dict[str, Any]:
    rho = recognised_rho(dial)
    return {
        "knob": dial.knob,
        "others": dict(dial.others),
        "values": list(dial.values),
        "spearman_recognised": rho and rho.to_dict(),
        "jump": dial.jump and dial.jump.to_dict(),
    }


def _set_dict(found: GeneratorSet) -> dict[str, Any]:
    return {
        "seed": found.seed,
        "chosen": found.chosen,
        "hypervolume": found.hypervolume,
        "delta": found.delta,
        "seconds": found.seconds,
        "points": [
            {name: value for name, value in point.to_dict().items() if name != "history"}
            for point in found.frontier.points
        ],
    }


def _record_at(row: GeneratorSeries | None, seed: int) -> Record | None:
    sets = row.sets if row else ()
    return next((s.records[0] for s in sets if s.seed == seed), None)


def whole_sets(sets: Sequence[GeneratorSet]) -> tuple[GeneratorSet, ...]:
    """The sets that are as large as the largest.

    One under way has a smaller H and a larger Δ for want of runs, not of the method.
    """
    largest = max(len(s.frontier.points) for s in sets)
    return tuple(s for s in sets if len(s.frontier.points) == largest)
