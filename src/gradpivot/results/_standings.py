"""Standings: comparison tables of classifiers from finished runs, one per problem, task and protocol. No torch.

Each series of a table (``CUP``, ``WS``, …) has one set S of runs per forgotten class and seed; see
:mod:`gradpivot.results.series`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import find_metric, standing_metrics
from gradpivot.results._json import plain, select
from gradpivot.results._sets import (
    ComparedTable,
    ComparedTables,
    Group,
    Place,
    Sets,
    forget_words,
    grouped,
    place_order,
    protocol_order,
    series_order,
    unique_records,
)  # fmt: skip
from gradpivot.results.frontier import Point, determined_metrics
from gradpivot.results.paper import PaperValue, counterpart, paper_datasets, paper_reference, paper_value
from gradpivot.results.ranking import Ranking, rankings
from gradpivot.results.record import Record, Role
from gradpivot.results.series import Series, gather, measures

__all__ = ["STANDINGS_SCHEMA", "Standings", "Table", "standings"]

STANDINGS_SCHEMA = "gradpivot.standings/1"


@dataclass(frozen=True, kw_only=True)
class Table(ComparedTable[Series]):
    """The series of one problem, task and protocol, in the paper's order and then alphabetically.

    Attributes:
        task: ``class-wise``, ``random 10 %``, …
        dataset: The paper's dataset to compare with, or None.
        context: Whether that dataset differs from ours, so that its values are context only.
        undetermined: Metrics that H and Δ leave out, because they are undetermined for a retrained model.
    """

    task: str
    dataset: str | None = None
    context: bool = False
    undetermined: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """The task."""
        return self.task

    @property
    def forgets(self) -> list[str]:
        """The forget sets, sorted."""
        return list(dict.fromkeys(forget for forget, _ in self.places))

    @property
    def rankings(self) -> list[Ranking]:
        """Rankings of the methods by each criterion."""
        return rankings(self.series)

    def paper(self, series: Series, measure: str, forget: str = "mean") -> PaperValue | None:
        """The paper's value for a row, or None."""
        if self.dataset is None or series.role == "original":
            return None
        name = "Retrain" if series.role == "retrained" else series.name
        return paper_value(self.task, self.dataset, forget, name, measure)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary, including the paper's values and the rankings."""
        return {
            **select(self, "problem", "kind", "task", "protocol", "forgets", "seeds", "undetermined", "notes"),
            "paper": select(self, "dataset", "context") if self.dataset else None,
            "rows": [{**row.to_dict(), "paper": self._paper_dict(row)} for row in self.rows],
            "rankings": plain(self.rankings),
        }

    def _paper_dict(self, row: Series) -> dict[str, Any]:
        values = {measure: self.paper(row, measure) for measure in measures(self.kind)}
        return {measure: value.to_dict() for measure, value in values.items() if value}


@dataclass(frozen=True, kw_only=True)
class Standings(ComparedTables[Table]):
    """All tables, sorted by problem, task and protocol."""

    schema = STANDINGS_SCHEMA


def standings(records: Iterable[Record], *, beside: str | None = None, notes: Iterable[str] = ()) -> Standings:
    """Group finished runs of classifiers into tables.

    Args:
        records: Runs, original and retrained models, in any order. Duplicates are ignored with a note.
        beside: A dataset of the paper, such as ``cifar10``, whose values are shown as *context* for problems that the
            paper does not have.
        notes: Further notes for the reader, such as failed runs; included in every export.

    Raises:
        GradPivotError: If no record is a run, a score is not finite, or ``beside`` is not in the paper.
    """
    unique, duplicates = unique_records(records)
    if beside is not None and beside not in paper_datasets("class-wise"):
        names = ", ".join(paper_datasets("class-wise"))
        raise GradPivotError(f"the paper has no table on {beside!r}; it has {names}")
    groups = sorted(grouped(unique, _task_of, by_seed=False), key=_table_order)
    return Standings(
        tables=tuple(_table(group, beside) for group in groups), notes=(*duplicates, *notes), records=len(unique)
    )


def _task_of(record: Record) -> str:
    """The task of a record: ``class-wise``, ``class-wise, 2 classes``, ``random 10 %``."""
    if record.kind != "class":
        return f"{record.kind} {record.forget}".strip()
    classes = record.forget.count(",") + 1
    return "class-wise" if classes == 1 else f"class-wise, {classes} classes"


def _table_order(group: Group) -> tuple[Any, ...]:
    return group.problem, not group.what.startswith("class"), group.what, *protocol_order(group.protocol)


def _table(group: Group, beside: str | None) -> Table:
    problem, kind, task, places = group.problem, group.kind, group.what, group.places
    references, notes = group.references, list(group.notes)
    own = counterpart(problem, task)
    references |= _paper_references(task, own, places - set(references), notes)
    # The same for all sets of a table: averages of H over other numbers of metrics mean nothing.
    metrics = determined_metrics(standing_metrics(kind), *(p.scores for p in references.values() if not p.diverged))
    left_out = tuple(name for name in standing_metrics(kind) if name not in metrics)

    def row(name: str, role: Role, runs: Sets) -> Series | None:
        return gather(name, role, kind, runs, references, places, metrics) if runs else None

    rows = [row(name, "run", group.series[name]) for name in sorted(group.series, key=series_order)]
    methods = tuple(found for found in rows if found)
    dataset = own or (beside if beside in paper_datasets(task) else None)
    lacks = "Δ is unknown there" if kind == "class" else "Δ and H, which depend on it, are unknown there"
    return Table(
        problem=problem, kind=kind, task=task, protocol=group.protocol, series=methods,
        original=row("Original", "original", group.models["original"]),
        retrained=row("Retrain", "retrained", group.models["retrained"]),
        dataset=dataset, context=dataset is not None and own is None, undetermined=left_out,
        notes=(*_undetermined_notes(left_out, references), *group.reference_notes(references, lacks), *notes,
               *group.gap_notes(methods), *_paper_notes(problem, task, own, dataset)),
    )  # fmt: skip


def _paper_references(task: str, dataset: str | None, places: set[Place], notes: list[str]) -> dict[Place, Point]:
    """The paper's retrained model at places that lack one; adds a note for each."""
    found: dict[Place, Point] = {}
    for place in sorted(places, key=place_order) if dataset else ():
        scores = paper_reference(task, dataset or "", place[0])
        if scores is not None:
            found[place] = Point(label="Retrain (the paper's)", settings={}, scores=scores)
            values = ", ".join(f"{m.upper()} {100 * getattr(scores, m):.2f}" for m in scores.metrics)
            notes.append(
                f"{forget_words('class', place[0])}, seed {place[1]}: no retrained model; Δ is to the paper's "
                f"({values}), another network on the same data."
            )
    return found


def _undetermined_notes(left_out: Iterable[str], references: Mapping[Place, Point]) -> list[str]:
    """A note on each metric that H and Δ leave out, with the number of sets if it is not all of them."""
    found, known = [], [point.scores for point in references.values() if not point.diverged]
    for name in left_out:
        lost = sum(not determined_metrics([name], scores) for scores in known)
        where = "here" if lost == len(known) else f"for {lost} of {len(known)} retrained models"
        found.append(
            f"{find_metric(name).symbol} is undetermined {where} (members and non-members look alike); H and Δ leave "
            f"it out."
        )
    return found


def _paper_notes(problem: str, task: str, own: str | None, dataset: str | None) -> list[str]:
    """A note if the paper's values on another dataset are shown."""
    if own or not dataset:
        return []
    return [f"The paper has no {problem}, {task}. Its values on {dataset} are context only."]
