"""From finished runs of generators to tables, every set judged.

A run's point is A = (1 − min(FID/M, 1), UA); H and Δ are computed per seed and then averaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.results._estimate import estimate
from gradpivot.results._sets import (
    Group,
    Place,
    Sets,
    grouped,
    place_order,
    protocol_order,
    series_order,
    unique_records,
    whole_sets,
)  # fmt: skip
from gradpivot.results.dial import dials, sort_key
from gradpivot.results.frontier import Frontier, Point, varying
from gradpivot.results.generators import (
    Generators,
    GeneratorSeries,
    GeneratorSet,
    GeneratorTable,
    are_generators,
    generation,
)
from gradpivot.results.pareto import distance
from gradpivot.results.record import Record, Role

__all__ = ["compare_generators"]


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
        raise GradPivotError("the records are of classifiers, which make no images; compare them in standings")
    groups = sorted(grouped(unique, lambda record: record.forget, by_seed=True), key=_table_order)
    return Generators(tables=tuple(map(_table, groups)), notes=(*doubled, *notes), records=len(unique))


def _table_order(group: Group) -> tuple[Any, ...]:
    return group.problem, group.kind, place_order((group.what, 0)), protocol_order(group.protocol)


def _table(group: Group) -> GeneratorTable:
    notes, references = list(group.notes), group.references
    if without := group.places - set(group.models["original"]):
        notes.append(f"No original model for {group.where(without)}: what was lost cannot be told there; score it.")

    def row(name: str, role: Role, runs: Sets) -> GeneratorSeries | None:
        return _gather(name, role, group.kind, runs, references) if runs else None

    rows = [found for name in group.series if (found := row(name, "run", group.series[name]))]
    methods = _timed(sorted(rows, key=lambda r: (r.method != "cup", *series_order(r.name))))
    lacks = "Δ cannot be given there, and the run shown is that with the largest fidelity + UA"
    table = GeneratorTable(
        problem=group.problem, kind=group.kind, forget=group.what, protocol=group.protocol, series=methods,
        forgotten=generation(methods[0].sets[0].frontier.points[0]).forgotten,
        original=row("Original", "original", group.models["original"]),
        retrained=row("Retrain", "retrained", group.models["retrained"]),
        notes=(*notes, *group.reference_notes(references, lacks), *group.gap_notes(methods)),
    )  # fmt: skip
    _check_comparable(table)
    return replace(table, notes=(*table.notes, *_uneven(table)))


def _gather(name: str, role: Role, kind: str, runs: Sets, references: Mapping[Place, Point]) -> GeneratorSeries:
    """Judge the sets of one series."""
    sets = tuple(_judge(name, kind, runs[place], references.get(place)) for place in sorted(runs, key=place_order))
    whole = whole_sets(sets)
    return GeneratorSeries(
        name=name, role=role, method=sets[0].records[0].method, sets=sets,
        hypervolume=estimate(s.hypervolume for s in whole), delta=estimate(s.delta for s in whole),
        seconds=estimate(s.seconds for s in whole),
        dials=tuple(dials([s.frontier.points for s in whole])) if role == "run" else (),
    )  # fmt: skip


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
        forget=records[0].forget, seed=records[0].seed, frontier=frontier, records=tuple(ordered),
        # At a tie a finite run, then the first along the knob.
        chosen=min(range(len(points)), key=lambda i: (costs[i], lost[i], i)),
        hypervolume=frontier.hypervolume(), delta=frontier.distance() if ideal else None,
        seconds=math.fsum(finite) / len(finite) if finite else None,
    )  # fmt: skip


def _knob(points: Sequence[Point]) -> str | None:
    """The name of the setting that the points walk along; None if what is called the knob is the same in all.

    A grid over something else, such as SalUn's share of saliency at one learning rate, is labelled by what varies.
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
    besides = varying(points, _knob(points))

    def order(record: Record) -> tuple[Any, ...]:
        point = record.point
        beside = [sort_key(point.settings.get(name)) for name in besides]
        return beside, -math.inf if point.knob is None else point.knob, record.key

    return sorted(records, key=order)


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
    return [f"Fidelity is over different numbers of images ({told}), so H and Δ are too; judge all at the same N."]
