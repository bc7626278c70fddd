"""Generators compared: from finished runs to tables, one per problem, what was forgotten and protocol. No torch.

In a table every series (``CUP``, ``SalUn``, ``SA``) has one set S of runs per seed. A generator is the point
A = (1 − min(FID/M, 1), UA); H and Δ are computed per seed and then averaged, as those of classifiers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.generation_scores import Frechet, GenerationScores
from gradpivot.frontier.dial import Dial, dials
from gradpivot.frontier.estimate import Estimate, estimate
from gradpivot.frontier.frontier import Frontier, Point
from gradpivot.frontier.paper import counterpart
from gradpivot.frontier.pareto import distance
from gradpivot.frontier.record import Record, Role
from gradpivot.frontier.series import forget_words, place_order
from gradpivot.frontier.standings import listed, protocol_order, series_order, unique_records

__all__ = [
    "SCHEMA", "GeneratorSeries", "GeneratorSet", "GeneratorTable", "Generators", "are_generators", "compare_generators",
    "generation", "recognised_rho",
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
        return _whole(self.sets)

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
        return sorted(
            kinds.values(), key=lambda f: (f.features not in firsts, f.features, f.n, f.n_reference)
        )

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


def compare_generators(records: Iterable[Record], *, notes: Iterable[str] = ()) -> Generators:
    """Group finished runs of generators into tables and judge every set.

    Args:
        records: Runs, originals and retrained references, in any order. Of several with one key the first
            counts, and a note says so.
        notes: What else readers must know, such as runs that failed; told in every export.

    Raises:
        GradPivotError: if a record is of a classifier, none is a run, or runs of a table cannot be compared.
    """
    unique, doubled = unique_records(records)
    if unique and not are_generators(unique):
        raise GradPivotError(
            "the records are of classifiers, which make no images; compare them in standings"
        )
    models: dict[tuple[str, str, str, Role], dict[int, list[Record]]] = {}
    runs: dict[tuple[str, str, str, str], dict[str, dict[int, list[Record]]]] = {}
    for record in unique:
        what = (record.problem, record.kind, record.forget)
        if record.role == "run":
            series = runs.setdefault((*what, record.protocol), {})
            series.setdefault(record.series, {}).setdefault(record.seed, []).append(record)
        else:
            models.setdefault((*what, record.role), {}).setdefault(record.seed, []).append(record)
    if not runs:
        raise GradPivotError("there is no finished run to compare; run 'gradpivot sweep' first")
    tables = tuple(_table(key, runs[key], models) for key in sorted(runs, key=_table_order))
    return Generators(tables=tables, notes=(*doubled, *notes), records=len(unique))


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


def _table_order(key: tuple[str, str, str, str]) -> tuple[Any, ...]:
    problem, kind, forget, protocol = key
    return problem, kind, place_order((forget, 0)), protocol_order(protocol)


def _table(
    key: tuple[str, str, str, str],
    series: Mapping[str, Mapping[int, list[Record]]],
    models: Mapping[tuple[str, str, str, Role], Mapping[int, list[Record]]],
) -> GeneratorTable:
    problem, kind, forget, protocol = key
    seeds = {seed for runs in series.values() for seed in runs}
    notes: list[str] = []
    original = _one_each(models.get((problem, kind, forget, "original"), {}), seeds, "original", notes)
    retrained = _one_each(models.get((problem, kind, forget, "retrained"), {}), seeds, "retrained", notes)
    references = {seed: found[0].point for seed, found in retrained.items()}

    def row(name: str, role: Role, runs: Mapping[int, list[Record]]) -> GeneratorSeries | None:
        return _gather(name, role, kind, runs, references) if runs else None

    rows = [found for name in series if (found := row(name, "run", series[name]))]
    methods = _timed(sorted(rows, key=lambda r: (r.method != "cup", *series_order(r.name))))
    table = GeneratorTable(
        problem=problem, kind=kind, forget=forget, protocol=protocol, series=methods,
        forgotten=generation(methods[0].sets[0].frontier.points[0]).forgotten,
        original=row("Original", "original", original), retrained=row("Retrain", "retrained", retrained),
        notes=(*notes, *_missing(seeds, original, references), *_gaps(methods, seeds)),
    )  # fmt: skip
    _check_comparable(table)
    return replace(table, notes=(*table.notes, *_uneven(table)))


def _one_each(
    found: Mapping[int, list[Record]], seeds: set[int], role: str, notes: list[str]
) -> dict[int, list[Record]]:
    """One original or reference a seed: the first by key where there are several."""
    several = sorted(seed for seed in seeds & set(found) if len(found[seed]) > 1)
    if several:
        notes.append(
            f"Seed {listed([str(s) for s in several])} has several {role} models; the first by key counts."
        )
    return {seed: found[seed][:1] for seed in sorted(seeds & set(found))}


def _gather(
    name: str, role: Role, kind: str, runs: Mapping[int, list[Record]], references: Mapping[int, Point]
) -> GeneratorSeries:
    """Judge the sets of one series."""
    sets = tuple(_judge(name, kind, runs[seed], references.get(seed)) for seed in sorted(runs))
    whole = _whole(sets)
    return GeneratorSeries(
        name=name, role=role, method=sets[0].records[0].method, sets=sets,
        hypervolume=estimate(s.hypervolume for s in whole), delta=estimate(s.delta for s in whole),
        seconds=estimate(s.seconds for s in whole),
        dials=tuple(dials([s.frontier.points for s in whole])) if role == "run" else (),
    )  # fmt: skip


def _whole(sets: Sequence[GeneratorSet]) -> tuple[GeneratorSet, ...]:
    # A set under way has a smaller H and a larger Δ for want of runs, not of the method.
    largest = max(len(s.frontier.points) for s in sets)
    return tuple(s for s in sets if len(s.frontier.points) == largest)


def _judge(name: str, kind: str, records: Sequence[Record], reference: Point | None) -> GeneratorSet:
    """H, Δ, the chosen run and the clock of one set."""
    ordered = _along(records)
    points = [record.point for record in ordered]
    ideal = reference.scores if reference and not reference.diverged else None
    frontier = Frontier(
        name=name, method=records[0].method, points=points, knob=_knob(points), reference=ideal, kind=kind
    )
    vectors = [point.scores.vector(frontier.metrics) for point in points]
    lost = [point.diverged is not None for point in points]
    if any(not math.isfinite(part) for vector in vectors for part in vector):
        raise GradPivotError(
            f"{name}, seed {records[0].seed}: a run has a Fréchet distance that is not a number; run it again"
        )
    target = ideal.vector(frontier.metrics) if ideal else None
    costs = [distance(vector, target) if target else -sum(vector) for vector in vectors]
    finite = [point.seconds for point in points if not point.diverged]
    return GeneratorSet(
        seed=records[0].seed, frontier=frontier, records=tuple(ordered),
        # At a tie a finite run, then the first along the knob.
        chosen=min(range(len(points)), key=lambda i: (costs[i], lost[i], i)),
        hypervolume=frontier.hypervolume(), delta=frontier.distance() if ideal else None,
        seconds=math.fsum(finite) / len(finite) if finite else None,
    )  # fmt: skip


def _knob(points: Sequence[Point]) -> str | None:
    """The name of the setting that the points walk along; None if what is called the knob is the same in all.

    A grid over something else, such as SalUn's share of saliency at one learning rate, is told by what varies.
    """
    if any(point.knob is None for point in points):
        return None
    names = [n for n in points[0].settings if all(p.settings.get(n) == p.knob for p in points)]
    varies = len({point.knob for point in points}) > 1 or len(points) == 1
    # Several settings may happen to be equal in all points; γ is what people look for.
    return ("gamma" if "gamma" in names else names[0]) if names and varies else None


def _along(records: Sequence[Record]) -> list[Record]:
    """In the order of the other settings that vary, and of the knob: one line along γ after the other."""
    points = [record.point for record in records]
    knob = _knob(points)
    names = dict.fromkeys(name for point in points for name in point.settings if name != knob)
    varying = [n for n in names if len({repr(p.settings.get(n)) for p in points}) > 1]

    def order(record: Record) -> tuple[Any, ...]:
        point = record.point
        beside = [_sortable(point.settings.get(name)) for name in varying]
        return beside, -math.inf if point.knob is None else point.knob, record.key

    return sorted(records, key=order)


def _sortable(value: object) -> tuple[int, float, str]:
    number = isinstance(value, int | float)
    return (0, float(value), "") if number else (1, 0.0, str(value))  # type: ignore[arg-type]


def _timed(rows: Sequence[GeneratorSeries]) -> tuple[GeneratorSeries, ...]:
    """The series with their time a run over CUP's."""
    cup = next((row for row in rows if row.name == "CUP"), None) or next(
        (row for row in rows if row.method == "cup"), None
    )
    beside = {s.seed: s.seconds for s in cup.whole} if cup else {}
    found = []
    for row in rows:
        both = [(s.seconds, beside[s.seed]) for s in row.whole if s.seconds and beside.get(s.seed)]
        own, cups = (math.fsum(pair[i] or 0.0 for pair in both) for i in (0, 1))
        found.append(replace(row, cup_ratio=own / cups if cups else None))
    return tuple(found)


def _missing(seeds: set[int], original: Mapping[int, Any], references: Mapping[int, Point]) -> list[str]:
    found = []
    if without := sorted(seeds - set(original)):
        where = listed([f"seed {s}" for s in without])
        found.append(f"No original model for {where}: what was lost cannot be told there; score it.")
    if without := sorted(seeds - set(references)):
        where = listed([f"seed {s}" for s in without])
        found.append(
            f"No retrained model for {where}: Δ cannot be given there, and the run shown is that with the largest "
            f"fidelity + UA; run Retrain."
        )
    if lost := sorted(s for s, point in references.items() if point.diverged):
        where = listed([f"seed {s}" for s in lost])
        found.append(f"The retrained model of {where} diverged and is no reference; run it again.")
    return found


def _gaps(rows: Sequence[GeneratorSeries], seeds: set[int]) -> list[str]:
    """Sets that are not there, smaller than they should be, or not as large as another series'."""
    found = []
    for row in rows:
        if absent := sorted(seeds - {s.seed for s in row.sets}):
            where = listed([f"seed {s}" for s in absent])
            found.append(
                f"{row.name} was not run on {where}; its means are over other seeds than those of the rest."
            )
        if parts := [f"seed {s.seed} has {len(s.records)} of {row.largest} runs" for s in row.sets
                     if len(s.records) < row.largest]:  # fmt: skip
            found.append(f"{row.name}: {listed(parts)}, and is left out of its means.")
    sizes = {row.name: row.largest for row in rows}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name} {size}" for name, size in sizes.items())
        found.append(f"Sets differ in size (runs: {told}): H and Δ can only gain from more settings.")
    if lost := [f"{row.name} {row.diverged} of {row.runs}" for row in rows if row.diverged]:
        found.append(f"Diverged, counted as zeros: {', '.join(lost)}.")
    return found


def _check_comparable(table: GeneratorTable) -> None:
    """H and Δ are of one distance at one scale.

    Raises:
        GradPivotError: if M or the features differ within a table.
    """
    for name, values in (
        ("M", {f"{scores.rescale:g}" for scores in table.finite}),
        ("features", {scores.frechet[0].features for scores in table.finite if scores.frechet}),
    ):
        if len(values) > 1:
            raise GradPivotError(
                f"{table.title}: fidelity is by {name} = {' and by '.join(sorted(values))}; H and Δ compare at one "
                f"only, judge all with the same"
            )


def _uneven(table: GeneratorTable) -> list[str]:
    """With few images a Fréchet distance is too large, and not by the same amount for every model."""
    numbers = sorted({(s.frechet[0].n, s.frechet[0].n_reference) for s in table.finite if s.frechet})
    if len(numbers) < 2:
        return []
    told = ", ".join(f"{n:,} against {reference:,}" for n, reference in numbers)
    return [
        f"Fidelity is over different numbers of images ({told}), so H and Δ are too; judge all at the same N."
    ]
