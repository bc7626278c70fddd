"""Tables of a generator comparison: the series, the paper's values, all runs."""

from __future__ import annotations

from gradpivot.evaluate import Frechet
from gradpivot.report.common.grid import Grid, Section, grid_lines, model_rows
from gradpivot.report.common.tables import DIVERGED_MARK
from gradpivot.report.common.wording import MISSING, number, percent
from gradpivot.report.generators.wording import (
    distance_at,
    distance_head,
    distance_text,
    evaluation_note,
    over_seeds,
    rho_text,
    run_label,
    sentences,
    shown_run,
    with_interval,
)
from gradpivot.results import (
    GENERATED,
    Estimate,
    GeneratorSeries,
    GeneratorSet,
    GeneratorTable,
    estimate,
    generation,
    paper_generation,
)

__all__ = ["generator_grids", "section"]


def section(table: GeneratorTable) -> Section:
    """The section of a table."""
    found = sentences(table)
    return Section(title=table.title, sentences=found, notes=table.notes, grids=generator_grids(table), short=found)


def generator_grids(table: GeneratorTable) -> list[Grid]:
    """All grids of a table: the series, the paper's values, all runs."""
    return [_series(table), *_beside(table), _runs(table)]


def _series(table: GeneratorTable) -> Grid:
    headers = (
        "Series", "Shown run", "Δ ↓ (pp)", "H ↑ (×100)", "ρ ↓ (γ, still recognised)",
        "UA ↑ (%)", "Kept recognised ↑ (%)", "change from original (pp)", *map(distance_head, table.distances),
        "Time per run ↓ (s)", "× CUP ↓", "Runs", "Diverged ↓",
    )  # fmt: skip
    return Grid(
        name="series", title="Series", headers=headers, caption=_caption(table), texts=2, models=model_rows(table),
        lines=grid_lines(_series_cells(table, row) for row in table.rows),
    )  # fmt: skip


def _series_cells(table: GeneratorTable, row: GeneratorSeries) -> list[str]:
    if all(s.shown.diverged for s in row.whole):
        shown = [DIVERGED_MARK] * (3 + len(table.distances))
    else:
        shown = [over_seeds(row, "ua"), over_seeds(row, "ra"), _hundred(table.kept_change(row))]
        shown += [shown_distance(row, kind) for kind in table.distances]
    return [
        row.name, shown_run(row), _hundred(row.delta), _hundred(row.hypervolume), rho_text(row), *shown,
        # The original has no unlearning run.
        _spread(row.seconds) if row.role != "original" else MISSING, number(row.cup_ratio),
        str(row.runs), str(row.diverged),
    ]  # fmt: skip


def _hundred(value: Estimate | None) -> str:
    return _spread(value, 100)


def _spread(value: Estimate | None, scale: float = 1) -> str:
    """The mean, with the standard deviation over seeds in brackets if there are several."""
    if value is None:
        return MISSING
    shown = number(scale * value.mean)
    return shown if value.std is None else f"{shown} ({number(scale * value.std)})"


def shown_distance(row: GeneratorSeries, kind: Frechet) -> str:
    """Fréchet distance of the shown runs, if all of them have it."""
    values = [distance_at(generation(s.shown), kind) for s in row.whole]
    found = None if None in values else estimate(values)
    if found is None:
        return MISSING
    return distance_text(found.mean) + (f" ({distance_text(found.std)})" if found.std is not None else "")


def _caption(table: GeneratorTable) -> str:
    seeds = len(table.seeds)
    shown = "closest to the retrained model" if table.retrained else "with the largest fidelity + UA"
    if seeds == 1:
        over = f"One seed ({table.seeds[0]}), too few for a ranking; Wilson intervals over images."
    else:
        over = f"Means over {seeds} seeds with their standard deviation in brackets; Student intervals over seeds."
    return " ".join(
        (
            f"The shown run is the one {shown}. UA is the share of the forgotten class's images that the classifier "
            "does not recognise as that class; 'kept recognised' is the share of the other classes' images that it "
            "does, with the change from the original model.",
            "Δ (to the retrained model) and H (of all runs) use (fidelity, UA), averaged over seeds.",
            "ρ is Spearman's ρ between γ and 1 − UA with all other settings fixed; −1 means strictly monotone.",
            evaluation_note(table),
            over,
            "Diverged runs count as zeros and are left out of the time per run, the wall-clock time of the unlearning "
            "call including preparation.",
        )
    )


def _beside(table: GeneratorTable) -> list[Grid]:
    """The paper's Δ, H and run time for the series it has."""
    known = [row for row in table.series if paper_generation("", row.name, "seconds")]
    if not known:
        return []
    headers = ("Series", "Δ ↓ (pp)", "paper", "H ↑ (×100)", "paper", "Time per run ↓ (s)", "paper", "× CUP ↓", "paper")
    lines = grid_lines(
        [row.name, _hundred(row.delta), _printed(table, row, "delta"), _hundred(row.hypervolume),
         _printed(table, row, "hypervolume"), _spread(row.seconds), _printed(table, row, "seconds"),
         number(row.cup_ratio), number(paper_ratio(row))]
        for row in known
    )  # fmt: skip
    if has_printed(table):
        note = "Its M, sampler, number of feature images and machine are not given or differ from ours."
    else:
        note = f"Its values are the range over {', '.join(GENERATED)} of CIFAR-10, a different problem: context only."
    return [
        Grid(
            name="paper", title="Comparison with the paper on CIFAR-10", headers=headers, lines=lines,
            caption=f"Paper: arXiv:2510.19226, one seed. {note} Only the ratio of run times is comparable.",
        )
    ]  # fmt: skip


def has_printed(table: GeneratorTable) -> bool:
    return table.dataset is not None and paper_generation(table.forget, "CUP", "delta") is not None


def _printed(table: GeneratorTable, row: GeneratorSeries, measure: str) -> str:
    scale = 1.0 if measure == "seconds" else 100.0
    if measure == "seconds" or has_printed(table):
        value = paper_generation(table.forget, row.name, measure)
        return number(scale * value.mean if value else None)
    values = [paper_generation(str(c), row.name, measure) for c in range(len(GENERATED))]
    found = sorted(scale * value.mean for value in values if value)
    return f"{number(found[0])} to {number(found[-1])}" if found else MISSING


def paper_ratio(row: GeneratorSeries) -> float | None:
    own, cup = (paper_generation("", name, "seconds") for name in (row.name, "CUP"))
    return own.mean / cup.mean if own and cup else None


def _runs(table: GeneratorTable) -> Grid:
    classes = _classes(table)
    headers = (
        "Series", "Run", "Seed", "UA ↑ (%)", "Kept recognised ↑ (%)", "Fidelity ↑ (%)", "Δ ↓ (pp)",
        *map(distance_head, table.distances), "Time ↓ (s)",
        *(f"{name}{' ↓ forgotten' if name in table.forgotten else ''} (%)" for name in classes),
    )  # fmt: skip
    lines = grid_lines(
        _run_cells(table, row, found, i, classes) for row in table.rows for found in row.sets for i in range(found.runs)
    )
    return Grid(
        name="runs", title="All runs", headers=headers, lines=lines, texts=2,
        caption="Shares with 95 % Wilson intervals over images. The last columns give, for each class, the share of "
        f"its images that the classifier recognises. {evaluation_note(table)}",
    )  # fmt: skip


def _classes(table: GeneratorTable) -> list[int]:
    """The forgotten classes, then the other classes that were sampled."""
    asked = {name for scores in table.finite for name in scores.asked}
    return [*table.forgotten, *sorted(asked - set(table.forgotten))]


def _run_cells(
    table: GeneratorTable, row: GeneratorSeries, found: GeneratorSet, i: int, classes: list[int]
) -> list[str]:
    point = found.frontier.points[i]
    name = [row.name, run_label(found.frontier, point) if row.role == "run" else MISSING, str(found.seed)]
    delta = found.delta_of(i)
    if point.diverged:
        lost = [DIVERGED_MARK] * 3 + [number(_scaled(delta))] + [DIVERGED_MARK] * len(table.distances)
        return [*name, *lost, number(point.seconds), *([DIVERGED_MARK] * len(classes))]
    scores = generation(point)
    shares = scores.recognised()
    return [
        *name, with_interval(scores, "ua"), with_interval(scores, "ra"), percent(scores.fidelity),
        number(_scaled(delta)), *(distance_text(distance_at(scores, kind)) for kind in table.distances),
        number(point.seconds or None), *(percent(shares.get(c)) for c in classes),
    ]  # fmt: skip


def _scaled(value: float | None) -> float | None:
    return None if value is None else 100 * value
