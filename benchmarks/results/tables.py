"""Markdown tables for results pages, and the numbers that several pages share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gradpivot.results import Measure, Record, Series, Table, standings

__all__ = ["markdown", "mean_ranks", "methods_table", "percent", "rank", "table_for", "worst_ra"]


def markdown(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers are aligned right by the columns after the first."""
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def percent(value: float | None, digits: int = 2) -> str:
    """A fraction in percent; empty where there is none."""
    return "" if value is None else f"{100 * value:.{digits}f}"


def table_for(records: Sequence[Record], kind: str, protocol: str) -> Table:
    """The comparison of one kind of forgetting under one protocol."""
    wanted = [r for r in records if r.kind == kind and r.protocol in ("", protocol)]
    (table,) = standings(wanted).tables
    return table


def worst_ra(series: Series) -> float:
    """The lowest RA of a method's runs; a diverged run counts as zero."""
    points = [point for found in series.sets for point in found.frontier.points]
    return min(0.0 if point.diverged else point.scores.ra for point in points)


def rank(table: Table, measure: str, name: str, *, least: bool = False) -> int:
    """The place of a method by the mean of a measure, 1 for the best."""
    means = {row.name: _mean(row.measures[measure]) for row in table.series}
    ordered = sorted((m for m in means.values() if m is not None), reverse=not least)
    own = means[name]
    assert own is not None
    return ordered.index(own) + 1


def mean_ranks(table: Table, measure: str) -> dict[str, float]:
    """Each method's place by a measure on a set of runs (less is better), averaged over the sets; ties share theirs."""
    known = {row.name: row.by_place(measure) for row in table.series}
    places = set.intersection(*map(set, known.values()))
    found: dict[str, float] = {}
    for name, own in known.items():
        below = [sum(other[p] < own[p] for other in known.values()) for p in places]
        equal = [sum(other[p] == own[p] for other in known.values()) for p in places]
        found[name] = sum(b + (e + 1) / 2 for b, e in zip(below, equal, strict=True)) / len(places)
    return found


def methods_table(table: Table) -> str:
    """One row per method: hypervolumes, distance to the retrained model, safety. The best value of a column is bold."""
    # H of records has no attack to leave out.
    without = {"hypervolume_without_mia": "H without MIA ↑"} if table.kind == "class" else {}
    columns = {"hypervolume": "H ↑", **without, "delta": "Δ ↓"}
    ranks = mean_ranks(table, "delta") if len(table.forgets) > 1 else {}
    ranked = ["mean rank by Δ"] if ranks else []
    heads = ("method", "settings", *columns.values(), *ranked, "lowest RA %", "diverged")
    series = sorted(table.series, key=lambda row: -(_mean(row.measures["hypervolume"]) or 0))
    tops = {
        name: (min if name == "delta" else max)(m for row in series if (m := _mean(row.measures[name])) is not None)
        for name in columns
    }
    rows = [
        (*_row(row, columns, tops), *([f"{ranks[row.name]:.1f}"] if ranks else []), percent(worst_ra(row), 1),
         f"{row.diverged} of {row.runs}")
        for row in series
    ]  # fmt: skip
    fixed = [row for row in (table.original, table.retrained) if row]
    dashes = ["–"] * len(ranked)
    return markdown(
        heads, [*((*_row(row, columns, {}), *dashes, percent(worst_ra(row), 1), "–") for row in fixed), *rows]
    )


def _row(series: Series, columns: Iterable[str], tops: Mapping[str, float]) -> tuple[str, ...]:
    cells = []
    for measure in columns:
        value = series.measures[measure]
        mean = _mean(value)
        text = percent(mean)
        if value is not None and value.over_sets.std is not None:
            assert value.over_sets.high is not None
            text += f" ± {100 * (value.over_sets.high - value.over_sets.mean):.2f}"
        cells.append(f"**{text}**" if mean is not None and mean == tops.get(measure) else text)
    settings = str(series.largest) if series.role == "run" else "–"
    return series.name, settings, *cells


def _mean(measure: Measure | None) -> float | None:
    return None if measure is None else measure.over_sets.mean
