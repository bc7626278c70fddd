"""Every method on digits, MNIST and CIFAR-10: hypervolume, distance to the retrained model, and safety."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from benchmarks.results.page import Page, Records
from benchmarks.results.tables import markdown, mean_ranks, methods_table, percent, rank, table_for, worst_ra

from gradpivot.report import STANDINGS
from gradpivot.results import Record, Series, Table, standings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAGES"]


def _facts(table: Table, prefix: str) -> dict[str, str]:
    """The table, CUP's places in it, and who leads."""
    cup = next(row for row in table.series if row.name == "CUP")
    others = [row for row in table.series if row is not cup]
    leaders = {ranking.criterion: ranking for ranking in table.rankings}
    facts = {f"{prefix}_table": methods_table(table), f"{prefix}_methods": str(len(table.series))}
    for measure, name in (("hypervolume", "h"), ("hypervolume_without_mia", "h_plain"), ("delta", "delta")):
        ranking = leaders[measure]
        tied = [rival.name for rival in ranking.rivals if rival.verdict in ("tied", "undecided")]
        facts |= {
            f"{prefix}_{name}_rank": str(rank(table, measure, "CUP", least=measure == "delta")),
            f"{prefix}_{name}_leader": ranking.leader,
            f"{prefix}_{name}_best": percent(ranking.estimate.mean),
            f"{prefix}_{name}_tied": str(len(tied)),
        }
    facts[f"{prefix}_cup_ra"] = percent(worst_ra(cup), 1)
    facts[f"{prefix}_low_ra"] = str(sum(worst_ra(row) < 0.9 for row in others))
    return facts


def _digits(records: Records) -> dict[str, str]:
    found = records.runs("digits")
    facts = _size(found, records.about("digits"))
    for protocol in ("clean", "paper"):
        for kind in ("class", "random"):
            facts |= _facts(table_for(found, kind, protocol), f"{protocol}_{kind}")
    return facts


def _mnist(records: Records) -> dict[str, str]:
    found = records.runs("mnist")
    facts = _size(found, records.about("mnist"))
    for kind in ("class", "random"):
        facts |= _facts(table_for(found, kind, "clean"), kind)
    return facts


def _cifar10(records: Records) -> dict[str, str]:
    found = records.runs("cifar10-small")
    return _size(found, records.about("cifar10-small")) | _facts(table_for(found, "class", "clean"), "class")


def _classes(experiment: str) -> Callable[[Records], dict[str, str]]:
    """A sweep that forgets several classes, one at a time."""

    def values(records: Records) -> dict[str, str]:
        found = records.runs(experiment)
        table = table_for(found, "class", "clean")
        leads, places = _leads(table)
        ranks = mean_ranks(table, "delta")
        return (
            _size(found, records.about(experiment))
            | _facts(table, "class")
            | {
                "classes_table": _by_class(table),
                "cup_leads": str(leads),
                "places": str(places),
                "cup_mean_rank": f"{ranks['CUP']:.1f}",
                "next_mean_rank": "{1} ({0:.1f})".format(*min((r, name) for name, r in ranks.items() if name != "CUP")),
                "original_ta": percent(table.original and _over(table.original, "ta"), 1),
                "separated": _separated(table),
            }
        )

    return values


def _leads(table: Table) -> tuple[int, int]:
    """Number of sets (class and seed) on which no other method has a smaller Δ than CUP, and of all sets."""
    known = {row.name: row.by_place("delta") for row in table.series}
    own = known.pop("CUP")
    return sum(value <= min(other.get(place, 1e9) for other in known.values()) for place, value in own.items()), len(
        own
    )


def _separated(table: Table) -> str:
    """Who leads by Δ, how sure that is, and how far the leader's and CUP's closest runs are from retraining."""
    ranking = next(ranking for ranking in table.rankings if ranking.criterion == "delta")
    apart = sum(rival.verdict in ("separated", "unsettled") for rival in ranking.rivals)
    verdict = next((f", and CUP is {rival.verdict}" for rival in ranking.rivals if rival.name == "CUP"), "")
    gaps = "; ".join(
        f"{row.name} {', '.join(_gap(row, table, name) for name in ('ra', 'ua', 'ta'))}"
        for row in table.series
        if row.name in ("CUP", ranking.leader)
    )
    return (
        f"{ranking.leader} leads by Δ: its paired difference is above zero against {apart} of "
        f"{len(ranking.rivals)}{verdict}. The closest runs' RA, UA and TA differ from retraining's in the mean by "
        f"(points): {gaps}"
    )


def _gap(row: Series, table: Table, name: str) -> str:
    assert table.retrained is not None
    mine, theirs = _over(row, name), _over(table.retrained, name)
    assert mine is not None
    assert theirs is not None
    return f"{100 * (mine - theirs):+.1f}"


def _over(series: Series, measure: str) -> float | None:
    found = series.measures[measure]
    return None if found is None else found.over_sets.mean


def _by_class(table: Table) -> str:
    """For each class the Δ of CUP and of the two best other methods, means over seeds."""

    def delta(row: Series, forget: str) -> float:
        found = row.classes.get(forget, {}).get("delta")
        return float("inf") if found is None else found.mean

    cup = next(row for row in table.series if row.name == "CUP")
    others = [row for row in table.series if row is not cup]
    rows = []
    for forget in table.forgets:
        best = sorted(others, key=lambda row: delta(row, forget))[:2]
        scores = [cup.classes[forget][name] for name in ("ra", "ua", "ta")]
        rows.append((
            forget, percent(delta(cup, forget)),
            " / ".join(percent(score and score.mean, 1) for score in scores),
            *(f"{row.name} {percent(delta(row, forget))}" for row in best),
        ))  # fmt: skip
    return markdown(("class", "CUP, Δ", "its RA / UA / TA %", "best other, Δ", "second, Δ"), rows)


def _size(found: Sequence[Record], about: str) -> dict[str, str]:
    return {"about": about, "runs": f"{sum(r.role == 'run' for r in found):,}"}


def _figure(experiment: str, file: str) -> Callable[[Records], dict[str, Figure]]:
    """Every method's runs on a class, in the plane of what is kept and what is forgotten."""

    def draw(records: Records) -> dict[str, Figure]:
        wanted = [r for r in records.runs(experiment) if r.kind == "class" and r.protocol in ("", "clean")]
        figures = STANDINGS.figures(standings(wanted))
        (name,) = [name for name in figures if name.endswith("clean-methods")]
        return {file: figures[name]}

    return draw


PAGES = (
    Page(name="digits-methods", values=_digits, figures=_figure("digits", "digits-methods.png")),
    Page(name="mnist-methods", values=_mnist, figures=_figure("mnist", "mnist-methods.png")),
    Page(
        name="fashion-classes", values=_classes("fashion-classes"),
        figures=_figure("fashion-classes", "fashion-classes.png"),
    ),
    Page(name="cifar10-small", values=_cifar10, figures=_figure("cifar10-small", "cifar10-small.png")),
)  # fmt: skip
