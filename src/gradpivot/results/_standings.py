"""Standings: from finished runs to tables, one per problem, task and protocol. No torch.

In a table every series (``CUP``, ``WS``, …) has one set S of runs per forgotten class and seed. H and Δ are
computed per set and then averaged; a setting averaged over seeds is no real model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.results.frontier import Point
from gradpivot.results.paper import (
    ORDER,
    PaperValue,
    counterpart,
    paper_datasets,
    paper_name,
    paper_reference,
    paper_value,
)
from gradpivot.results.ranking import Ranking, rankings
from gradpivot.results.record import Record, Role
from gradpivot.results.series import Place, Series, forget_words, gather, measures, place_order

__all__ = [
    "SCHEMA", "Standings", "Table", "listed", "protocol_order", "series_order", "standings", "task_of",
    "unique_records",
]  # fmt: skip

SCHEMA = "gradpivot.standings/1"
PROTOCOLS = ("paper", "clean")
_MOST_NOTES = 12
_MOST_NAMES = 3


@dataclass(frozen=True, kw_only=True)
class Table:
    """The series of one problem, task and protocol, side by side.

    Attributes:
        problem: The problem's name.
        kind: What was forgotten: ``class``, ``random``, …
        task: ``class-wise``, ``random 10 %``, …
        protocol: ``paper``, ``clean`` or a recipe's own.
        series: The methods, in the paper's order and then alphabetically.
        original: The model before unlearning, if it was scored.
        retrained: The reference, if it was trained.
        dataset: The paper's dataset whose values stand beside ours, or None.
        context: Whether that dataset is another one than ours, to be read as context only.
        notes: What is missing, doubled or not to be compared.
    """

    problem: str
    kind: str
    task: str
    protocol: str
    series: tuple[Series, ...]
    original: Series | None = None
    retrained: Series | None = None
    dataset: str | None = None
    context: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def title(self) -> str:
        """``digits, class-wise, paper protocol``."""
        return ", ".join(
            part for part in (self.problem, self.task, self.protocol and f"{self.protocol} protocol") if part
        )

    @property
    def rows(self) -> tuple[Series, ...]:
        """The original, the retrained model and the methods."""
        return (*(row for row in (self.original, self.retrained) if row), *self.series)

    @property
    def places(self) -> list[Place]:
        """Every (forget, seed) that some method was run on."""
        return sorted({s.place for row in self.series for s in row.sets}, key=place_order)

    @property
    def seeds(self) -> list[int]:
        """The seeds."""
        return sorted({seed for _, seed in self.places})

    @property
    def forgets(self) -> list[str]:
        """What was forgotten, in order."""
        return list(dict.fromkeys(forget for forget, _ in self.places))

    @property
    def rankings(self) -> list[Ranking]:
        """The methods by each criterion, with paired differences to the leader."""
        return rankings(self.series)

    def paper(self, series: Series, measure: str, forget: str = "mean") -> PaperValue | None:
        """The paper's value for a row, or None."""
        if self.dataset is None or series.role == "original":
            return None
        name = "Retrain" if series.role == "retrained" else series.name
        return paper_value(self.task, self.dataset, forget, name, measure)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary, with the paper's values and the rankings."""
        return {
            "problem": self.problem,
            "kind": self.kind,
            "task": self.task,
            "protocol": self.protocol,
            "forgets": self.forgets,
            "seeds": self.seeds,
            "notes": list(self.notes),
            "paper": {"dataset": self.dataset, "context": self.context} if self.dataset else None,
            "rows": [{**row.to_dict(), "paper": self._paper_dict(row)} for row in self.rows],
            "rankings": [ranking.to_dict() for ranking in self.rankings],
        }

    def _paper_dict(self, row: Series) -> dict[str, Any]:
        values = {measure: self.paper(row, measure) for measure in measures()}
        return {measure: value.to_dict() for measure, value in values.items() if value}


@dataclass(frozen=True, kw_only=True)
class Standings:
    """All tables.

    Attributes:
        tables: By problem, task and protocol.
        notes: What concerns all of them, such as records that came twice or runs that failed.
        records: How many records they were made from.
    """

    tables: tuple[Table, ...]
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


def standings(records: Iterable[Record], *, beside: str | None = None, notes: Iterable[str] = ()) -> Standings:
    """Group finished runs into tables and judge every set.

    Args:
        records: Runs, originals and retrained references, in any order. Of several with one key the first
            counts, and a note says so.
        beside: A dataset of the paper, such as ``cifar10``, whose values stand as *context* beside problems that
            the paper does not have.
        notes: What else readers must know, such as runs that failed; told in every export.

    Raises:
        GradPivotError: if no record is a run, a score is not finite, or ``beside`` is not in the paper.
    """
    unique, doubled = unique_records(records)
    if beside is not None and beside not in paper_datasets("class-wise"):
        names = ", ".join(paper_datasets("class-wise"))
        raise GradPivotError(f"the paper has no table on {beside!r}; it has {names}")
    models: dict[tuple[str, str, Role], dict[Place, list[Record]]] = {}
    runs: dict[tuple[str, str, str], dict[str, dict[Place, list[Record]]]] = {}
    kinds: dict[str, str] = {}
    for record in unique:
        task, place = task_of(record), (record.forget, record.seed)
        kinds[task] = record.kind
        if record.role == "run":
            series = runs.setdefault((record.problem, task, record.protocol), {})
            series.setdefault(record.series, {}).setdefault(place, []).append(record)
        else:
            model = models.setdefault((record.problem, task, record.role), {})
            model.setdefault(place, []).append(record)
    if not runs:
        raise GradPivotError("there is no finished run to compare; run 'gradpivot sweep' first")
    tables = tuple(_table(key, kinds[key[1]], runs[key], models, beside) for key in sorted(runs, key=_table_order))
    return Standings(tables=tables, notes=(*doubled, *notes), records=len(unique))


def task_of(record: Record) -> str:
    """What a record's table is about: ``class-wise``, ``class-wise, 2 classes``, ``random 10 %``."""
    if record.kind != "class":
        return f"{record.kind} {record.forget}".strip()
    classes = record.forget.count(",") + 1
    return "class-wise" if classes == 1 else f"class-wise, {classes} classes"


def unique_records(records: Iterable[Record]) -> tuple[list[Record], tuple[str, ...]]:
    """The first record of each key, sorted by key, so that the order they came in does not matter."""
    first: dict[str, Record] = {}
    doubled = differing = 0
    for record in records:
        if record.key in first:
            doubled += 1
            differing += first[record.key].point.scores != record.point.scores
        else:
            first[record.key] = record
    if not doubled:
        return sorted(first.values(), key=attrgetter("key")), ()
    told = f"{doubled} records came more than once; the first of each key counts"
    if differing:
        told += f" ({differing} of them had other scores than the first)"
    return sorted(first.values(), key=attrgetter("key")), (told + ".",)


def _table_order(key: tuple[str, str, str]) -> tuple[Any, ...]:
    problem, task, protocol = key
    return problem, not task.startswith("class"), task, *protocol_order(protocol)


def protocol_order(protocol: str) -> tuple[int, str]:
    """The paper's, the clean one, and then the others by name."""
    return (PROTOCOLS.index(protocol) if protocol in PROTOCOLS else len(PROTOCOLS)), protocol


def series_order(name: str) -> tuple[int, str, str]:
    """The paper's methods in its order, and then the others by name."""
    known = paper_name(name)
    return (ORDER.index(known) if known else len(ORDER)), name.lower(), name


def _table(
    key: tuple[str, str, str],
    kind: str,
    series: Mapping[str, Mapping[Place, list[Record]]],
    models: Mapping[tuple[str, str, Role], Mapping[Place, list[Record]]],
    beside: str | None,
) -> Table:
    problem, task, protocol = key
    places = {place for runs in series.values() for place in runs}
    notes: list[str] = []
    original = _one_each(models.get((problem, task, "original"), {}), places, "original", kind, notes)
    retrained = _one_each(models.get((problem, task, "retrained"), {}), places, "retrained", kind, notes)
    references = {place: records[0].point for place, records in retrained.items()}
    own = counterpart(problem, task)
    references |= _borrowed(task, own, places - set(references), notes)

    def row(name: str, role: Role, runs: Mapping[Place, list[Record]]) -> Series | None:
        return gather(name, role, kind, runs, references, places) if runs else None

    rows = [row(name, "run", series[name]) for name in sorted(series, key=series_order)]
    methods = tuple(found for found in rows if found)
    dataset = own or (beside if beside in paper_datasets(task) else None)
    return Table(
        problem=problem, kind=kind, task=task, protocol=protocol, series=methods,
        original=row("Original", "original", original), retrained=row("Retrain", "retrained", retrained),
        dataset=dataset, context=dataset is not None and own is None,
        notes=(*_missing_references(kind, places, references), *notes, *_gaps(kind, methods, len(places)),
               *_sizes(methods), *_paper_notes(problem, task, own, dataset)),
    )  # fmt: skip


def _one_each(
    found: Mapping[Place, list[Record]], places: set[Place], role: str, kind: str, notes: list[str]
) -> dict[Place, list[Record]]:
    """One original or reference a place: the first by key where there are several."""
    several = [place for place in sorted(found, key=place_order) if place in places and len(found[place]) > 1]
    if several:
        forget, seed = several[0]
        notes.append(
            f"{len(several)} (class, seed) have several {role} models, the first being "
            f"{forget_words(kind, forget)}, seed {seed}; the first by key counts."
        )
    return {place: records[:1] for place, records in found.items() if place in places}


def _borrowed(task: str, dataset: str | None, places: set[Place], notes: list[str]) -> dict[Place, Point]:
    """The paper's retrained model where we have none of our own, and a note that says so."""
    found: dict[Place, Point] = {}
    for place in sorted(places, key=place_order) if dataset else ():
        scores = paper_reference(task, dataset or "", place[0])
        if scores is not None:
            found[place] = Point(label="Retrain (the paper's)", settings={}, scores=scores)
            told = ", ".join(f"{m.upper()} {100 * getattr(scores, m):.2f}" for m in scores.metrics)
            notes.append(
                f"{forget_words('class', place[0])}, seed {place[1]}: no model of ours was retrained; Δ is to the "
                f"paper's ({told}), another network on the same data."
            )
    return found


def _missing_references(kind: str, places: set[Place], references: Mapping[Place, Point]) -> list[str]:
    without = sorted(places - set(references), key=place_order)
    lost = sorted((p for p in places if p in references and references[p].diverged), key=place_order)
    found = []
    if without:
        takes = "Δ" if kind == "class" else "Δ and H, which is judged by the gap to it,"
        where = listed([f"{forget_words(kind, f)}, seed {s}" for f, s in without])
        found.append(f"No retrained model for {where}: {takes} cannot be given there; run Retrain.")
    if lost:
        where = listed([f"{forget_words(kind, f)}, seed {s}" for f, s in lost])
        found.append(f"The retrained model of {where} diverged and is no reference; run it again.")
    return found


def _gaps(kind: str, rows: Sequence[Series], places: int) -> list[str]:
    """Sets that are not there, or smaller than they should be."""
    found = []
    for row in rows:
        if row.missing:
            where = listed([f"{forget_words(kind, f)}, seed {s}" for f, s in row.missing])
            found.append(
                f"{row.name} was run on {len(row.sets)} of {places} sets (not on {where}); its means are over "
                f"other sets than those of the rest."
            )
        parts = [f"{forget_words(kind, f)}, seed {s} has {n} of {row.largest} runs" for (f, s), n in row.incomplete]
        if parts:
            found.append(f"{row.name}: {listed(parts)}.")
    if any(row.incomplete for row in rows):
        found.append("Sets with fewer runs than their series' largest are left out of means and rankings.")
    lost = [f"{row.name} {row.diverged} of {row.runs}" for row in rows if row.diverged]
    return [*found, f"Diverged, counted as zeros: {', '.join(lost)}."] if lost else found


def _sizes(rows: Sequence[Series]) -> list[str]:
    """Sets of one series that are larger than those of another, which favours it."""
    sizes: dict[int, list[str]] = {}
    for row in rows:
        sizes.setdefault(row.largest, []).append(row.name)
    if len(sizes) < 2:
        return []
    common = max(sizes, key=lambda size: (len(sizes[size]), size))
    order = sorted(sizes)
    if len(sizes[common]) > _MOST_NAMES:
        order = [*(size for size in order if size != common), common]
        sizes[common] = ["the others"]
    parts = [f"{size}: {', '.join(sizes[size])}" for size in order]
    return [f"Sets differ in size (runs, {'; '.join(parts)}): H and Δ can only gain from more settings."]


def listed(parts: Sequence[str]) -> str:
    """The first dozen, and how many more."""
    if len(parts) <= _MOST_NOTES:
        return "; ".join(parts)
    return "; ".join(parts[:_MOST_NOTES]) + f"; and {len(parts) - _MOST_NOTES} more"


def _paper_notes(problem: str, task: str, own: str | None, dataset: str | None) -> list[str]:
    if own:
        return []
    told = f"The paper has no {problem}, {task}."
    if dataset:
        told += f" Its values on {dataset} are context, another problem: not to be compared number by number."
    return [told]
