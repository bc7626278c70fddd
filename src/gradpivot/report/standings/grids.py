"""What standings show as tables: methods, intervals, the paper's values, time, classes and dials."""

from __future__ import annotations

from gradpivot.evaluate import scored_metrics
from gradpivot.report.common.grid import Grid, GridCell, Section, grid_lines, model_rows
from gradpivot.report.common.wording import number, percent, symbol
from gradpivot.report.standings.wording import caption, head, interval, name_of, others, paper_title, sentences, spread
from gradpivot.results import CRITERIA, Series, Table, comparable, forget_words

__all__ = ["grids", "marks", "section"]

JUDGED = ("delta", "hypervolume", "hypervolume_svc", "hypervolume_without_mia")
"""What best and second best are marked in: a set's numbers, not those of one chosen run."""
BESIDE = ("ra", "ua", "ta", "mia_svc", "delta_svc", "hypervolume_svc", "seconds")
"""What the paper prints; its MIA is the SVC's, and so are its Δ and H."""


def shown() -> tuple[str, ...]:
    """The columns of the methods' table: every score, Δ and H."""
    scores = (metric.name for metric in scored_metrics())
    return (*scores, "delta", "hypervolume", "hypervolume_svc", "hypervolume_without_mia")


def section(table: Table) -> Section:
    """A table with all that is said of it."""
    return Section(
        title=table.title,
        sentences=sentences(table),
        notes=table.notes,
        grids=grids(table),
        short=sentences(table, ("hypervolume", "delta")),
    )


def grids(table: Table) -> list[Grid]:
    """Everything that is said of a table: methods, intervals, the paper, time, classes, dials."""
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
    marked = {measure: marks(table, measure) for measure in JUDGED}

    def cell(row: Series, measure: str) -> GridCell:
        mark = marked.get(measure, {}).get(row.name, "") if row.role == "run" else ""
        return GridCell(spread(measure, row.measures[measure]), mark)

    lines = ((GridCell(row.name), *(cell(row, measure) for measure in shown())) for row in table.rows)
    return Grid(
        name="methods", title="Methods", heads=("Method", *(head(m, table.kind) for m in shown())),
        lines=grid_lines(lines), caption=caption(table), models=model_rows(table),
    )  # fmt: skip


def marks(table: Table, measure: str) -> dict[str, str]:
    """Best and second best as printed, over the sets that all have: equal to two digits is equally good."""
    known = {name: round(100 * e.mean, 2) for name, e in comparable(table.series, measure).items()}
    order = sorted(set(known.values()), reverse=CRITERIA.get(measure, True))
    marks = dict(zip(order, ("best", "second"), strict=False))
    return {name: marks.get(value, "") for name, value in known.items()}


def _intervals(table: Table) -> Grid:
    heads = ["Method", "Sets"]
    for measure in JUDGED:
        heads += [f"{name_of(measure)} over sets", f"over {len(table.seeds)} seeds"]
    lines = []
    for row in table.rows:
        line = [row.name, str(len(row.whole))]
        for measure in JUDGED:
            m = row.measures[measure]
            over = (m.over_sets, m.over_seeds) if m else (None, None)
            line += [interval(measure, value) for value in over]
        lines.append(line)
    return Grid(
        name="intervals", title="95 % intervals of the means", heads=tuple(heads), lines=grid_lines(lines),
        caption="Student intervals: over all (class, seed) sets as if they were independent, and over the means of "
        "each seed, fewer values but independent ones. They may reach beyond 100.",
    )  # fmt: skip


def _beside(table: Table) -> Grid:
    title = paper_title(table)
    heads = ["Method"]
    for measure in BESIDE:
        heads += [head(measure, table.kind), "paper"]
    lines = [
        [row.name, *(spread(m, value) for m in BESIDE for value in (row.measures[m], table.paper(row, m)))]
        for row in table.rows
        if row.role != "original"
    ]
    said = (
        "Another problem than ours, for orientation only."
        if table.context
        else "The paper's machine, architecture and seeds are not ours; its time is minutes a run, here in seconds."
    )
    return Grid(
        name="paper", title=f"Beside the {title}", heads=tuple(heads), lines=grid_lines(lines),
        caption=f"Paper: arXiv:2510.19226. Its MIA is the SVC's, and so are its Δ and H. {said}",
    )  # fmt: skip


def _time(table: Table) -> Grid:
    heads = ("Method", "Runs a set", "Runs", "Diverged ↓", "SVC undetermined ↓ (%)", "Time a run ↓ (s)",
             "Whole space ↓ (s)", "Run / Retrain ↓ (%)", "Space / Retrain ↓ (%)")  # fmt: skip
    lines = (
        [row.name, str(row.largest), str(row.runs), str(row.diverged), percent(row.undetermined),
         spread("seconds", row.measures["seconds"]), spread("space_seconds", row.measures["space_seconds"]),
         percent(row.retrain_ratio), percent(row.space_ratio)]
        for row in table.rows
    )  # fmt: skip
    return Grid(
        name="time", title="Runs and time", heads=heads, lines=grid_lines(lines), models=model_rows(table),
        caption="Wall-clock of the unlearning call, preparation included. Time a run is over finite runs, "
        "since one that diverged stops early; the whole space is all runs, what a search over all settings costs.",
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
        name=f"classes-{measure}", title=f"{head(measure, table.kind)} by what is forgotten",
        heads=("Method", *(forget_words(table.kind, forget) for forget in forgets)), lines=grid_lines(lines),
        caption="Mean and, in brackets, standard deviation over seeds."
        + (" The paper's rows for Retrain repeat its ten-class mean." if table.dataset and not table.context else ""),
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
    heads = ("Method", "Other settings", "Values", "ρ(γ, UA) ↑", "ρ low", "ρ high", "UA jump ↓ (pp)",
             "Largest ↓ (pp)", "Finite ↑ (%)", "Sets")  # fmt: skip
    return Grid(
        name="dials", title="Controllability", heads=heads, lines=grid_lines(lines), texts=3,
        caption="Along γ with all else equal: Spearman's ρ of γ and UA with its 95 % interval over sets, the mean and "
        "the largest UA jump between neighbouring γ, the share of runs that stayed finite. ρ and jumps are over "
        "finite runs; a set on which UA never varied has no ρ.",
    )  # fmt: skip
