"""Standings: from finished runs to tables, one per problem, task and protocol. No torch.

In a table every series (``CUP``, ``WS``, …) has one set S of runs per forgotten class and seed. H and Δ are
computed per set and then averaged; a setting averaged over seeds is no real model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gradpivot.errors import GradPivotError
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
from gradpivot.results.frontier import Point
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
        dataset: The paper's dataset whose values stand beside ours, or None.
        context: Whether that dataset is another one than ours, to be read as context only.
    """

    task: str
    dataset: str | None = None
    context: bool = False

    @property
    def what(self) -> str:
        """The task."""
        return self.task

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
            **select(self, "problem", "kind", "task", "protocol", "forgets", "seeds", "notes"),
            "paper": select(self, "dataset", "context") if self.dataset else None,
            "rows": [{**row.to_dict(), "paper": self._paper_dict(row)} for row in self.rows],
            "rankings": plain(self.rankings),
        }

    def _paper_dict(self, row: Series) -> dict[str, Any]:
        values = {measure: self.paper(row, measure) for measure in measures()}
        return {measure: value.to_dict() for measure, value in values.items() if value}


@dataclass(frozen=True, kw_only=True)
class Standings(ComparedTables[Table]):
    """All tables, by problem, task and protocol."""

    schema = STANDINGS_SCHEMA


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
    groups = sorted(grouped(unique, _task_of, by_seed=False), key=_table_order)
    return Standings(
        tables=tuple(_table(group, beside) for group in groups), notes=(*doubled, *notes), records=len(unique)
    )


def _task_of(record: Record) -> str:
    """What a record's table is about: ``class-wise``, ``class-wise, 2 classes``, ``random 10 %``."""
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
    references |= _borrowed(task, own, places - set(references), notes)

    def row(name: str, role: Role, runs: Sets) -> Series | None:
        return gather(name, role, kind, runs, references, places) if runs else None

    rows = [row(name, "run", group.series[name]) for name in sorted(group.series, key=series_order)]
    methods = tuple(found for found in rows if found)
    dataset = own or (beside if beside in paper_datasets(task) else None)
    takes = "Δ" if kind == "class" else "Δ and H, which is judged by the gap to it,"
    return Table(
        problem=problem, kind=kind, task=task, protocol=group.protocol, series=methods,
        original=row("Original", "original", group.models["original"]),
        retrained=row("Retrain", "retrained", group.models["retrained"]),
        dataset=dataset, context=dataset is not None and own is None,
        notes=(*group.reference_notes(references, f"{takes} cannot be given there"), *notes,
               *group.gap_notes(methods), *_paper_notes(problem, task, own, dataset)),
    )  # fmt: skip


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


def _paper_notes(problem: str, task: str, own: str | None, dataset: str | None) -> list[str]:
    if own:
        return []
    told = f"The paper has no {problem}, {task}."
    if dataset:
        told += f" Its values on {dataset} are context, another problem: not to be compared number by number."
    return [told]
