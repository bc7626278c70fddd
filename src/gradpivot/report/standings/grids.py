"""Tables of standings: methods, intervals, the paper's values, time, classes and dials."""

from __future__ import annotations

from gradpivot.evaluate import headline_metrics
from gradpivot.report.common.grid import Grid, GridCell, Section, grid_lines, model_rows
from gradpivot.report.common.wording import has_mia, number, percent, symbol
from gradpivot.report.standings.wording import (
    caption,
    head,
    interval,
    measure_name,
    others,
    paper_title,
    sentences,
    spread,
)
from gradpivot.results import CRITERIA, Series, Table, comparable, forget_words

__all__ = ["grids", "marks", "ranked_measures", "section"]

PAPER_MEASURES = ("ra", "ua", "ta", "mia_svc", "delta_svc", "hypervolume_svc", "seconds")
"""Measures that the paper reports; its MIA, Δ and H use the SVC attack."""


def ranked_measures(kind: str) -> tuple[str, ...]:
    """Measures that mark best and second best: those of a whole set, not of one chosen run."""
    return ("delta", "hypervolume", *(("hypervolume_svc", "hypervolume_without_mia") if has_mia(kind) else ()))


def shown(kind: str) -> tuple[str, ...]:
    """Columns of the methods table: headline scores, Δ and H."""
    return (*(metric.name for metric in headline_metrics(kind)), *ranked_measures(kind))


def section(table: Table) -> Section:
    """The section of a table."""
    return Section(
        title=table.title,
        sentences=sentences(table),
        notes=table.notes,
        grids=grids(table),
        short=sentences(table, ("hypervolume", "delta")),
    )


def grids(table: Table) -> list[Grid]:
    """All grids of a table: methods, intervals, the paper's values, time, classes, dials."""
    found = [_methods(table), _intervals(table)]
    if table.dataset:
        found.append(_beside(table))
    found.append(_time(table))
    if len(table.forgets) > 1:
        found += [_by_class(table, "hypervolume"), _by_class(table, "delta")]
    if any(row.dials for row in table.series):
        found.append(_dials(table))
    return found


def _methods(table: Table) -> Grid:
    marked = {measure: marks(table, measure) for measure in ranked_measures(table.kind)}
    columns = shown(table.kind)

    def cell(row: Series, measure: str) -> GridCell:
        mark = marked.get(measure, {}).get(row.name, "") if row.role == "run" else ""
        return GridCell(spread(measure, row.measures[measure]), mark)

    lines = ((GridCell(row.name), *(cell(row, measure) for measure in columns)) for row in table.rows)
    return Grid(
        name="methods", title="Methods", headers=("Method", *(head(m, table.kind) for m in columns)),
        lines=grid_lines(lines), caption=caption(table), models=model_rows(table),
    )  # fmt: skip


def marks(table: Table, measure: str) -> dict[str, str]:
    """Best and second best over the sets that all methods share; values equal to two digits tie."""
    known = {name: round(100 * e.mean, 2) for name, e in comparable(table.series, measure).items()}
    order = sorted(set(known.values()), reverse=CRITERIA.get(measure, True))
    marks = dict(zip(order, ("best", "second"), strict=False))
    return {name: marks.get(value, "") for name, value in known.items()}


def _intervals(table: Table) -> Grid:
    headers = ["Method", "Sets"]
    for measure in ranked_measures(table.kind):
        headers += [f"{measure_name(measure)} over sets", f"over {len(table.seeds)} seeds"]
    lines = []
    for row in table.rows:
        line = [row.name, str(len(row.whole))]
        for measure in ranked_measures(table.kind):
            m = row.measures[measure]
            over = (m.over_sets, m.over_seeds) if m else (None, None)
            line += [interval(measure, value) for value in over]
        lines.append(line)
    return Grid(
        name="intervals", title="95 % intervals of the means", headers=tuple(headers), lines=grid_lines(lines),
        caption="Student intervals. The first treats all (class, seed) sets as independent; the second uses the means "
        "per seed, which are fewer but independent. Intervals may exceed 100.",
    )  # fmt: skip


def _beside(table: Table) -> Grid:
    title = paper_title(table)
    headers = ["Method"]
    for measure in PAPER_MEASURES:
        headers += [head(measure, table.kind), "paper"]
    lines = [
        [row.name, *(spread(m, value) for m in PAPER_MEASURES for value in (row.measures[m], table.paper(row, m)))]
        for row in table.rows
        if row.role != "original"
    ]
    note = (
        "The paper's problem differs from ours; its values are context only."
        if table.context
        else "The paper uses another machine, architecture and seeds; its minutes per run are converted to seconds."
    )
    return Grid(
        name="paper", title=f"Comparison with the {title}", headers=tuple(headers), lines=grid_lines(lines),
        caption=f"Paper: arXiv:2510.19226. Its MIA, Δ and H use the SVC attack. {note}",
    )  # fmt: skip


def _time(table: Table) -> Grid:
    headers = ("Method", "Runs per set", "Runs", "Diverged ↓", "SVC undetermined ↓ (%)", "Time per run ↓ (s)",
             "Whole space ↓ (s)", "Run / Retrain ↓ (%)", "Space / Retrain ↓ (%)")  # fmt: skip
    lines = (
        [row.name, str(row.largest), str(row.runs), str(row.diverged), percent(row.undetermined),
         spread("seconds", row.measures["seconds"]), spread("space_seconds", row.measures["space_seconds"]),
         percent(row.retrain_ratio), percent(row.space_ratio)]
        for row in table.rows
    )  # fmt: skip
    return Grid(
        name="time", title="Runs and time", headers=headers, lines=grid_lines(lines), models=model_rows(table),
        caption="Wall-clock time of the unlearning call including preparation. Time per run excludes diverged runs, "
        "which stop early. Whole space is the total of all runs: the cost of searching all settings.",
    )  # fmt: skip


def _by_class(table: Table, measure: str) -> Grid:
    forgets = table.forgets
    lines = []
    for row in table.rows:
        cells = (row.classes.get(forget, {}).get(measure) for forget in forgets)
        lines.append([row.name, *(spread(measure, cell) for cell in cells)])
        printed = [table.paper(row, f"{measure}_svc", forget) for forget in forgets]
        if any(printed) and not table.context:
            lines.append([f"{row.name}, paper (SVC)", *(spread(measure, value) for value in printed)])
    return Grid(
        name=f"classes-{measure}", title=f"{head(measure, table.kind)} by forget set",
        headers=("Method", *(forget_words(table.kind, forget) for forget in forgets)), lines=grid_lines(lines),
        caption="Mean and, in brackets, standard deviation over seeds."
        + (" The paper's Retrain rows repeat its ten-class mean." if table.dataset and not table.context else ""),
    )  # fmt: skip


def _dials(table: Table) -> Grid:
    lines = []
    for row in table.series:
        for dial in row.dials:
            values = f"{symbol(dial.knob)} {dial.values[0]:g}…{dial.values[-1]:g} ({len(dial.values)})"
            rho, jump = dial.rho, dial.jump
            lines.append([
                row.name, others(dial.others), values, number(rho.mean if rho else None),
                number(rho.low if rho else None), number(rho.high if rho else None),
                percent(jump.mean if jump else None), percent(dial.largest_jump), percent(dial.finite),
                str(dial.sets),
            ])  # fmt: skip
    headers = ("Method", "Other settings", "Values", "ρ(γ, UA) ↑", "ρ low", "ρ high", "UA jump ↓ (pp)",
             "Largest ↓ (pp)", "Finite ↑ (%)", "Sets")  # fmt: skip
    return Grid(
        name="dials", title="Controllability", headers=headers, lines=grid_lines(lines), texts=3,
        caption="γ varies, all other settings are fixed. Spearman's ρ between γ and UA with its 95 % interval over "
        "sets, mean and largest UA jump between neighbouring γ, share of finite runs. ρ and jumps use finite runs "
        "only; a set with constant UA has no ρ.",
    )  # fmt: skip
