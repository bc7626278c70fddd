"""Comparison tables of generators, from finished runs.

The scores of a run are A = (1 − min(FID/M, 1), UA). H and Δ are computed per seed and then averaged.
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
    """Group finished runs of generators into tables.

    Args:
        records: Runs, original and retrained models, in any order. Duplicates are ignored with a note.
        notes: Further notes for the reader, such as failed runs; included in every export.

    Raises:
        GradPivotError: If a record belongs to a classifier, no record is a run, or the runs of a table are not
            comparable.
    """
    unique, duplicates = unique_records(records)
    if unique and not are_generators(unique):
        raise GradPivotError("the records are from classifiers, not generators; compare them with standings")
    groups = sorted(grouped(unique, lambda record: record.forget, by_seed=True), key=_table_order)
    return Generators(tables=tuple(map(_table, groups)), notes=(*duplicates, *notes), records=len(unique))


def _table_order(group: Group) -> tuple[Any, ...]:
    return group.problem, group.kind, place_order((group.what, 0)), protocol_order(group.protocol)


def _table(group: Group) -> GeneratorTable:
    notes, references = list(group.notes), group.references
    if without := group.places - set(group.models["original"]):
        notes.append(f"No original model for {group.where(without)}: the change in RA is unknown there; score it.")

    def row(name: str, role: Role, runs: Sets) -> GeneratorSeries | None:
        return _gather(name, role, group.kind, runs, references) if runs else None

    rows = [found for name in group.series if (found := row(name, "run", group.series[name]))]
    methods = _with_cup_ratio(sorted(rows, key=lambda r: (r.method != "cup", *series_order(r.name))))
    lacks = "Δ is unknown there, and the chosen run has the largest fidelity + UA"
    table = GeneratorTable(
        problem=group.problem, kind=group.kind, forget=group.what, protocol=group.protocol, series=methods,
        forgotten=generation(methods[0].sets[0].frontier.points[0]).forgotten,
        original=row("Original", "original", group.models["original"]),
        retrained=row("Retrain", "retrained", group.models["retrained"]),
        notes=(*notes, *group.reference_notes(references, lacks), *group.gap_notes(methods)),
    )  # fmt: skip
    _check_comparable(table)
    return replace(table, notes=(*table.notes, *_image_count_notes(table)))


def _gather(name: str, role: Role, kind: str, runs: Sets, references: Mapping[Place, Point]) -> GeneratorSeries:
    """Compute the sets and means of one series."""
    sets = tuple(
        _evaluate_set(name, kind, runs[place], references.get(place)) for place in sorted(runs, key=place_order)
    )
    whole = whole_sets(sets)
    return GeneratorSeries(
        name=name, role=role, method=sets[0].records[0].method, sets=sets,
        hypervolume=estimate(s.hypervolume for s in whole), delta=estimate(s.delta for s in whole),
        seconds=estimate(s.seconds for s in whole),
        dials=tuple(dials([s.frontier.points for s in whole])) if role == "run" else (),
    )  # fmt: skip


def _evaluate_set(name: str, kind: str, records: Sequence[Record], reference: Point | None) -> GeneratorSet:
    """Compute H, Δ, the chosen run and the mean time of one set."""
    ordered = _sort_along_knob(records)
    points = [record.point for record in ordered]
    ideal = reference.scores if reference and not reference.diverged else None
    frontier = Frontier(
        name=name, method=records[0].method, points=points, knob=_knob(points), reference=ideal, kind=kind
    )
    vectors = [point.scores.vector(frontier.metrics) for point in points]
    lost = [point.diverged is not None for point in points]
    if any(not math.isfinite(part) for vector in vectors for part in vector):
        raise GradPivotError(f"{name}, seed {records[0].seed}: the Fréchet distance of a run is not a number; rerun it")
    target = ideal.vector(frontier.metrics) if ideal else None
    costs = [distance(vector, target) if target else -sum(vector) for vector in vectors]
    finite = [point.seconds for point in points if not point.diverged]
    return GeneratorSet(
        forget=records[0].forget, seed=records[0].seed, frontier=frontier, records=tuple(ordered),
        # Ties go to a finite run, then to the first along the knob.
        chosen=min(range(len(points)), key=lambda i: (costs[i], lost[i], i)),
        hypervolume=frontier.hypervolume(), delta=frontier.distance() if ideal else None,
        seconds=math.fsum(finite) / len(finite) if finite else None,
    )  # fmt: skip


def _knob(points: Sequence[Point]) -> str | None:
    """The name of the setting that varies along the points; None if the knob is the same in all of them.

    For example, a grid over SalUn's saliency threshold at one learning rate is labelled by the threshold.
    """
    if any(point.knob is None for point in points):
        return None
    names = [n for n in points[0].settings if all(p.settings.get(n) == p.knob for p in points)]
    varies = len({point.knob for point in points}) > 1 or len(points) == 1
    # Several settings may have the value of the knob; prefer γ.
    return ("gamma" if "gamma" in names else names[0]) if names and varies else None


def _sort_along_knob(records: Sequence[Record]) -> list[Record]:
    """Sort by the other settings that vary, then by the knob."""
    points = [record.point for record in records]
    besides = varying(points, _knob(points))

    def order(record: Record) -> tuple[Any, ...]:
        point = record.point
        beside = [sort_key(point.settings.get(name)) for name in besides]
        return beside, -math.inf if point.knob is None else point.knob, record.key

    return sorted(records, key=order)


def _with_cup_ratio(rows: Sequence[GeneratorSeries]) -> tuple[GeneratorSeries, ...]:
    """The series with their time per run relative to CUP."""
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
    """Check that all models of a table use the same M and features.

    Raises:
        GradPivotError: If M or the features differ.
    """
    for name, values in (
        ("M", {f"{scores.rescale:g}" for scores in table.finite}),
        ("features", {scores.frechet[0].features for scores in table.finite if scores.frechet}),
    ):
        if len(values) > 1:
            raise GradPivotError(
                f"{table.title}: fidelity is computed with different {name} ({', '.join(sorted(values))}), so H and Δ "
                f"cannot be compared; judge all runs with the same {name}"
            )


def _image_count_notes(table: GeneratorTable) -> list[str]:
    """A note if numbers of images differ: the bias of the Fréchet distance depends on them."""
    numbers = sorted({(s.frechet[0].n, s.frechet[0].n_reference) for s in table.finite if s.frechet})
    if len(numbers) < 2:
        return []
    counts = ", ".join(f"{n:,} against {reference:,}" for n, reference in numbers)
    return [f"Fidelity uses different numbers of images ({counts}), which biases H and Δ; use the same number."]
