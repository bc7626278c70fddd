"""Base classes of the comparison tables of classifiers and generators: grouping of records, sets, series, notes."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, Generic, TypeVar

from gradpivot.errors import GradPivotError
from gradpivot.results._json import select
from gradpivot.results.dial import DialCurve
from gradpivot.results.frontier import Frontier, Point
from gradpivot.results.paper import ORDER, paper_name
from gradpivot.results.record import Record, Role

__all__ = [
    "ComparedTable", "ComparedTables", "Group", "JudgedSeries", "JudgedSet", "Place", "Sets", "forget_words", "grouped",
    "place_order", "protocol_order", "series_order", "unique_records", "whole_sets",
]  # fmt: skip

PROTOCOLS = ("paper", "clean")
_MAX_LISTED = 12
_MAX_NAMES = 3

Place = tuple[str, int]
"""The forget set and the seed."""
Sets = Mapping[Place, list[Record]]


@dataclass(frozen=True, kw_only=True)
class JudgedSet:
    """The set S of one series for one (forget, seed).

    Attributes:
        forget: The forget set, such as ``3``.
        seed: Seed of the original, the reference and the runs.
        frontier: The runs and their reference.
    """

    forget: str
    seed: int
    frontier: Frontier

    @property
    def place(self) -> Place:
        """The forget set and the seed."""
        return self.forget, self.seed

    @property
    def runs(self) -> int:
        """Number of runs, including diverged ones."""
        return len(self.frontier.points)

    @property
    def diverged(self) -> int:
        """Number of diverged runs; their scores are zero."""
        return sum(point.diverged is not None for point in self.frontier.points)


SetT = TypeVar("SetT", bound=JudgedSet)


@dataclass(frozen=True, kw_only=True)
class JudgedSeries(Generic[SetT]):
    """A row of a table.

    Attributes:
        name: Name in tables.
        role: ``run`` for a method, ``original`` or ``retrained`` for a reference model.
        method: Registered name of the method.
        sets: One per (forget, seed), sorted.
        dials: Controllability along γ, for each combination of the other settings.
    """

    name: str
    role: Role
    method: str
    sets: tuple[SetT, ...]
    dials: tuple[DialCurve, ...] = ()

    @property
    def whole(self) -> tuple[SetT, ...]:
        """The complete sets, which averages use; see :func:`whole_sets`. Every series has at least one."""
        return whole_sets(self.sets)

    @property
    def incomplete(self) -> tuple[tuple[Place, int], ...]:
        """Sets with fewer runs than the largest, as (place, runs); averages leave them out."""
        return tuple((s.place, s.runs) for s in self.sets if s.runs < self.largest)

    @property
    def largest(self) -> int:
        """Number of runs in its largest set."""
        return max((s.runs for s in self.sets), default=0)

    @property
    def runs(self) -> int:
        """Number of runs in all sets."""
        return sum(s.runs for s in self.sets)

    @property
    def diverged(self) -> int:
        """Number of diverged runs in all sets."""
        return sum(s.diverged for s in self.sets)


def whole_sets(sets: Sequence[SetT]) -> tuple[SetT, ...]:
    """The sets with as many runs as the largest.

    An incomplete set has a smaller H and a larger Δ because runs are missing, not because of the method.
    """
    largest = max((s.runs for s in sets), default=0)
    return tuple(s for s in sets if s.runs == largest)


SeriesT = TypeVar("SeriesT", bound=JudgedSeries[Any])


@dataclass(frozen=True, kw_only=True)
class ComparedTable(ABC, Generic[SeriesT]):
    """The series of one problem and protocol.

    Attributes:
        problem: Name of the problem.
        kind: Kind of split: ``class``, ``random``, …
        protocol: ``paper``, ``clean`` or one defined by a recipe.
        series: The methods.
        original: The original model, if scored.
        retrained: The retrained model, if there is one.
        notes: Notes on missing, duplicate or incomparable records.
    """

    problem: str
    kind: str
    protocol: str
    series: tuple[SeriesT, ...]
    original: SeriesT | None = None
    retrained: SeriesT | None = None
    notes: tuple[str, ...] = ()

    @property
    @abstractmethod
    def what(self) -> str:
        """The task or the forget set, for the title."""

    @property
    def title(self) -> str:
        """``digits, class-wise, paper protocol``."""
        return ", ".join(filter(None, (self.problem, self.what, self.protocol and f"{self.protocol} protocol")))

    @property
    def rows(self) -> tuple[SeriesT, ...]:
        """All rows: the original, the retrained model and the methods."""
        return (*(row for row in (self.original, self.retrained) if row), *self.series)

    @property
    def places(self) -> list[Place]:
        """All (forget, seed) of the methods' runs."""
        return sorted({s.place for row in self.series for s in row.sets}, key=place_order)

    @property
    def seeds(self) -> list[int]:
        """All seeds of the methods' runs."""
        return sorted({seed for _, seed in self.places})

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""


TableT = TypeVar("TableT", bound=ComparedTable[Any])


@dataclass(frozen=True, kw_only=True)
class ComparedTables(Generic[TableT]):
    """All tables.

    Attributes:
        tables: Sorted by problem, forget set and protocol.
        notes: Notes on all tables, such as duplicate records or failed runs.
        records: Number of records used.
    """

    schema: ClassVar[str]
    tables: tuple[TableT, ...]
    notes: tuple[str, ...] = ()
    records: int = 0

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary with its schema version, in fractions and seconds."""
        return select(self, "schema", "records", "notes", "tables")


@dataclass(frozen=True, kw_only=True)
class Group:
    """The records of one table.

    Attributes:
        problem: Name of the problem.
        kind: Kind of split: ``class``, ``random``, …
        what: The task or the forget set.
        protocol: ``paper``, ``clean`` or one defined by a recipe.
        series: The runs by series and place.
        models: The original and retrained models by role and place, one each.
        notes: Notes on places with several models.
        by_seed: Whether there is only one forget set, so that notes name only the seed.
    """

    problem: str
    kind: str
    what: str
    protocol: str
    series: Mapping[str, Sets]
    models: Mapping[Role, Sets]
    notes: tuple[str, ...]
    by_seed: bool

    @property
    def places(self) -> set[Place]:
        """All (forget, seed) of the methods' runs."""
        return {place for runs in self.series.values() for place in runs}

    @property
    def references(self) -> dict[Place, Point]:
        """The retrained models."""
        return {place: records[0].point for place, records in self.models["retrained"].items()}

    def where(self, places: Iterable[Place]) -> str:
        """Format places for a note: ``class 3, seed 0; class 3, seed 1``."""
        return _join(_describe_place(self.kind, place, self.by_seed) for place in sorted(places, key=place_order))

    def reference_notes(self, references: Mapping[Place, Point], lacks: str) -> list[str]:
        """Notes on places without a retrained model (``lacks`` gives the consequence), or where it diverged."""
        without = self.places - set(references)
        lost = [place for place in self.places - without if references[place].diverged]
        found = [f"No retrained model for {self.where(without)}: {lacks}; run Retrain."] if without else []
        note = f"The retrained model of {self.where(lost)} diverged and is not used as a reference; rerun it."
        return [*found, note] if lost else found

    def gap_notes(self, rows: Sequence[JudgedSeries[Any]]) -> list[str]:
        """Notes on missing or incomplete sets, sets of different sizes, and diverged runs."""
        found = []
        for row in rows:
            if missing := self.places - {s.place for s in row.sets}:
                found.append(
                    f"{row.name} was run on {len(row.sets)} of {len(self.places)} sets (not on "
                    f"{self.where(missing)}); its means are over different sets than the others'."
                )
            if parts := [f"{self.where([place])} has {n} of {row.largest} runs" for place, n in row.incomplete]:
                found.append(f"{row.name}: {_join(parts)}.")
        if any(row.incomplete for row in rows):
            found.append("Sets with fewer runs than their series' largest are left out of means and rankings.")
        if lost := [f"{row.name} {row.diverged} of {row.runs}" for row in rows if row.diverged]:
            found.append(f"Diverged, counted as zeros: {', '.join(lost)}.")
        return found + _size_notes(rows)


def _describe_place(kind: str, place: Place, by_seed: bool) -> str:
    return f"seed {place[1]}" if by_seed else f"{forget_words(kind, place[0])}, seed {place[1]}"


def unique_records(records: Iterable[Record]) -> tuple[list[Record], tuple[str, ...]]:
    """The first record of each key, sorted by key, and a note on duplicates."""
    first: dict[str, Record] = {}
    duplicates = differing = 0
    for record in records:
        if record.key in first:
            duplicates += 1
            differing += first[record.key].point.scores != record.point.scores
        else:
            first[record.key] = record
    note = f"Ignored {duplicates} duplicate records"
    note += f" ({differing} with different scores)." if differing else "."
    return sorted(first.values(), key=attrgetter("key")), (note,) if duplicates else ()


def grouped(records: Iterable[Record], what: Callable[[Record], str], *, by_seed: bool) -> list[Group]:
    """Group records into tables by problem, kind, ``what`` and protocol.

    Raises:
        GradPivotError: If no record is a run.
    """
    runs: dict[tuple[str, ...], dict[str, dict[Place, list[Record]]]] = {}
    models: dict[tuple[str, ...], dict[Place, list[Record]]] = {}
    for record in records:
        key = (record.problem, record.kind, what(record))
        if record.role == "run":
            sets = runs.setdefault((*key, record.protocol), {}).setdefault(record.series, {})
        else:
            sets = models.setdefault((*key, record.role), {})
        sets.setdefault((record.forget, record.seed), []).append(record)
    if not runs:
        raise GradPivotError("there is no finished run to compare; run 'gradpivot sweep' first")
    roles: tuple[Role, ...] = ("original", "retrained")
    return [
        _group(key, series, {role: models.get((*key[:3], role), {}) for role in roles}, by_seed)
        for key, series in runs.items()
    ]


def _group(key: Sequence[str], series: Mapping[str, Sets], models: Mapping[Role, Sets], by_seed: bool) -> Group:
    """Create a group with one original and one retrained model per place: the first by key."""
    problem, kind, what, protocol = key
    places = {place for runs in series.values() for place in runs}
    kept = {role: {place: found[place] for place in sorted(places & set(found), key=place_order)}
            for role, found in models.items()}  # fmt: skip
    several = {role: [_describe_place(kind, place, by_seed) for place, records in found.items() if len(records) > 1]
               for role, found in kept.items()}  # fmt: skip
    return Group(
        problem=problem, kind=kind, what=what, protocol=protocol, series=series, by_seed=by_seed,
        models={role: {place: records[:1] for place, records in found.items()} for role, found in kept.items()},
        notes=tuple(f"There are several {role} models for {_join(words)}; the first by key is used."
                    for role, words in several.items() if words),
    )  # fmt: skip


def _size_notes(rows: Sequence[JudgedSeries[Any]]) -> list[str]:
    """A note if series have sets of different sizes, which favours the larger ones."""
    sizes: dict[int, list[str]] = {}
    for row in rows:
        sizes.setdefault(row.largest, []).append(row.name)
    if len(sizes) < 2:
        return []
    common = max(sizes, key=lambda size: (len(sizes[size]), size))
    order = sorted(sizes)
    if len(sizes[common]) > _MAX_NAMES:
        order = [*(size for size in order if size != common), common]
        sizes[common] = ["the others"]
    parts = [f"{size}: {', '.join(sizes[size])}" for size in order]
    return [f"Sets differ in size (runs, {'; '.join(parts)}): H and Δ can only gain from more settings."]


def _join(parts: Iterable[str]) -> str:
    """Join the first dozen, and count the rest."""
    first, more = (known := list(parts))[:_MAX_LISTED], len(known) - _MAX_LISTED
    return "; ".join(first) + (f"; and {more} more" if more > 0 else "")


def place_order(place: Place) -> tuple[Any, ...]:
    """Sort key: by forget set, then by seed."""
    forget, seed = place
    # Sort numbers numerically: "10" after "9".
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", forget)]
    return parts, seed


def protocol_order(protocol: str) -> tuple[int, str]:
    """Sort key: ``paper``, ``clean``, then the others by name."""
    return (PROTOCOLS.index(protocol) if protocol in PROTOCOLS else len(PROTOCOLS)), protocol


def series_order(name: str) -> tuple[int, str, str]:
    """Sort key: the paper's methods in its order, then the others by name."""
    known = paper_name(name)
    return (ORDER.index(known) if known else len(ORDER)), name.lower(), name


def forget_words(kind: str, forget: str) -> str:
    """Describe a forget set: ``class 3`` or ``random 10 %``."""
    return f"class {forget}" if kind == "class" else f"{kind} {forget}".strip()
