"""Targets, quick frontiers, and the choice of a point without a retrained model, on digits."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

from benchmarks.results.page import Page, Records
from benchmarks.results.tables import markdown, percent

__all__ = ["PAGE"]


def _landings(rows: list[dict[str, Any]]) -> str:
    by_target: dict[float, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_target[row["asked"]].append(row)
    return markdown(
        ("UA asked %", "UA reached, each seed %", "lowest RA %", "highest cost, runs"),
        (
            (percent(asked, 0), ", ".join(percent(row["ua"], 1) for row in found),
             percent(min(row["ra"] for row in found)), f"{max(row['cost'] for row in found):.2f}")
            for asked, found in by_target.items()
        ),
    )  # fmt: skip


def _pairs(rows: list[dict[str, Any]]) -> str:
    kinds = {"class": "class 3", "random": "random 10 %"}
    return markdown(
        ("forget (seed)", "until", "keep", "dense sweep", "search", "cost, runs"),
        (
            (f"{kinds[row['kind']]} ({row['seed']})", row["until"], row["keep"],
             "feasible" if row["feasible"] else "infeasible",
             ("met" if row["met"] else f"{row['binding']} fails")
             + ("" if row["feasible"] == row["met"] else " (wrong)"), f"{row['cost']:.2f}")
            for row in rows
        ),
    )  # fmt: skip


def _frontier(rows: list[dict[str, Any]]) -> str:
    names = {"random": "random 10 %"}
    return markdown(
        ("forget", "points", "worst ε, points", "cost / sweep %", "median regret, points", "the sweep's regret"),
        (
            (names.get(row["forget"], f"class {row['forget']}"), row["points"], percent(row["epsilon"]),
             percent(row["cost"], 0), percent(median(row["regret_without_mia"])),
             percent(median(row["sweep_regret_without_mia"])))
            for row in rows
        ),
    )  # fmt: skip


def _values(records: Records) -> dict[str, str]:
    targets, frontier = records.data("targets"), records.data("frontier")
    pairs = targets["pairs"]
    return {
        "about": records.about("targets"),
        "frontier_about": records.about("frontier"),
        "landings": _landings(targets["landings"]),
        "farthest": percent(targets["farthest"], 1),
        "landing_cost": f"{max(row['cost'] for row in targets['landings']):.2f}",
        "pairs": _pairs(pairs),
        "agreed": str(targets["agreed"]),
        "asked": str(len(pairs)),
        "pair_cost": f"{max(row['cost'] for row in pairs):.2f}",
        "frontier": _frontier(frontier),
        "epsilon": percent(max(row["epsilon"] for row in frontier if row["points"] > 5)),
        "quick_cost": percent(max(row["cost"] for row in frontier if row["points"] == 11), 0),
        "regret": percent(median(r for row in frontier for r in row["regret_without_mia"])),
        "regret_mia": percent(max(r for row in frontier for r in row["regret"])),
    }


PAGE = Page(name="targets", values=_values)
