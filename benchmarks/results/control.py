"""Whether γ keeps its promise: CUP over γ and learning rates, in the defaults and as printed in the paper."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.results.page import Page, Records
from benchmarks.results.tables import markdown, percent

from gradpivot.dial import target_degree
from gradpivot.results import Record, spearman

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAGE", "dial_points", "rows"]

PROBLEMS = {"digits": "control-digits", "mnist": "control-mnist", "cifar10": "control-cifar10"}
SAFE = 0.9
"""A run up to γ = 0.9 has collapsed if its RA is below this share of the original's."""
_HEADS = (
    "CUP", "learning rate", "runs", "diverged", "collapsed", "lowest RA / original %", "lowest UA at γ = 0.9 %",
    "lowest ρ(γ, UA)", "largest UA error, points",
)  # fmt: skip


def rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One row per protocol, series and learning rate; the worst seed decides."""
    originals = {(r.forget, r.seed): r.point.scores for r in records if r.role == "original"}
    lines: dict[tuple[str, str, float], list[Record]] = defaultdict(list)
    for record in records:
        if record.role == "run":
            lines[record.protocol, record.series, record.point.settings["lr"]].append(record)
    return [
        {"protocol": protocol, "series": series, "lr": lr, **_row(found, originals)}
        for (protocol, series, lr), found in sorted(lines.items())
    ]


def _row(records: Sequence[Record], originals: Mapping[Any, Any]) -> dict[str, Any]:
    seeds: dict[Any, list[Record]] = defaultdict(list)
    for record in sorted(records, key=_gamma):
        seeds[record.forget, record.seed].append(record)
    below = [r for r in records if _gamma(r) <= SAFE + 1e-9]
    kept = [r.point.scores.ra / originals[r.forget, r.seed].ra for r in _finite(below)]
    nine = [r.point.scores.ua for r in _finite(records) if r.point.knob == 0.9]
    telemetry = [r.provenance.get("telemetry", {}) for r in records]
    return {
        "runs": len(records),
        "diverged": len(records) - len(_finite(records)),
        "collapsed": sum(share < SAFE for share in kept) + len(below) - len(_finite(below)),
        "lowest_ra": min(kept, default=None),
        "ua_at_0.9": min(nine, default=None),
        "rho": min((rho for s in seeds.values() if (rho := _rho(s)) is not None), default=None),
        "jump": max((_jump(s) for s in seeds.values()), default=0.0),
        "error": max((e for at, s in seeds.items() for e in _errors(s, originals[at].ua)), default=None),
        "rose": _mean(telemetry, "rose_retain"),
        "taken_back": _mean(telemetry, "taken_back"),
    }


def _gamma(record: Record) -> float:
    return record.point.knob or 0.0


def _finite(records: Sequence[Record]) -> list[Record]:
    return [r for r in records if r.point.diverged is None]


def _rho(records: Sequence[Record]) -> float | None:
    found = _finite(records)
    return spearman([_gamma(r) for r in found], [r.point.scores.ua for r in found])


def _jump(records: Sequence[Record]) -> float:
    """The largest change of UA between neighbouring tenths of γ."""
    tenths = [r for r in _finite(records) if abs(10 * _gamma(r) % 1 - 0.5) > 0.4]
    near = [(a, b) for a, b in pairwise(tenths) if _gamma(b) - _gamma(a) < 0.11]
    return max((abs(b.point.scores.ua - a.point.scores.ua) for a, b in near), default=0.0)


def _asked(record: Record, start: float) -> float:
    return start + (1 - start) * target_degree(_gamma(record))


def _errors(records: Sequence[Record], start: float) -> list[float]:
    """The differences between UA and the degree γ asks for."""
    return [abs(r.point.scores.ua - _asked(r, start)) for r in _finite(records)]


def _mean(telemetry: Sequence[Mapping[str, Any]], name: str) -> float | None:
    known = [t[name] for t in telemetry if name in t]
    return fmean(known) if known else None


def _table(found: Sequence[Mapping[str, Any]]) -> str:
    names = {"clean": "", "paper": ", as printed"}
    return markdown(
        _HEADS,
        (
            (
                f"{row['series']}{names[row['protocol']]}", f"{row['lr']:g}", row["runs"], row["diverged"],
                row["collapsed"], percent(row["lowest_ra"], 1), percent(row["ua_at_0.9"], 1),
                "" if row["rho"] is None else f"{row['rho']:.3f}", percent(row["error"], 1),
            )
            for row in found
        ),
    )  # fmt: skip


def dial_points(records: Sequence[Record], protocol: str = "clean", lr: float = 1e-3) -> list[dict[str, float]]:
    """Asked and reached UA, and RA, for each γ: means over finite seeds; empty entries where every seed diverged."""
    originals = {(r.forget, r.seed): r.point.scores for r in records if r.role == "original"}
    found: dict[float, list[Record]] = defaultdict(list)
    for r in records:
        if r.role == "run" and r.series == "CUP" and r.protocol == protocol and r.point.settings["lr"] == lr:
            found[_gamma(r)].append(r)
    points = []
    for gamma, runs in sorted(found.items()):
        alive = _finite(runs)
        asked = fmean(_asked(r, originals[r.forget, r.seed].ua) for r in runs)
        point = {"gamma": gamma, "asked": asked, "runs": len(runs), "diverged": len(runs) - len(alive)}
        if alive:
            point |= {
                "ua": fmean(r.point.scores.ua for r in alive),
                "ra": fmean(r.point.scores.ra for r in alive),
                "ta": fmean(r.point.scores.ta for r in alive),
            }
        points.append(point)
    return points


def _walk(records: Sequence[Record]) -> str:
    """γ, and what was asked for and reached, in the defaults."""
    tenths = [p for p in dial_points(records) if abs(10 * p["gamma"] % 1 - 0.5) > 0.4]
    return markdown(
        ("γ", "UA asked %", "UA reached %", "RA %", "TA %"),
        (
            (f"{p['gamma']:g}", *(percent(p.get(name), 1) for name in ("asked", "ua")),
             *(percent(p.get(name)) for name in ("ra", "ta")))
            for p in tenths
        ),
    )  # fmt: skip


def _values(records: Records) -> dict[str, str]:
    values = {}
    for problem, experiment in PROBLEMS.items():
        found = records.runs(experiment)
        summary = rows(found)
        clean = [row for row in summary if row["protocol"] == "clean" and row["series"] == "CUP"]
        paper = [row for row in summary if row["protocol"] == "paper"]
        values |= {
            f"{problem}_table": _table(summary),
            f"{problem}_walk": _walk(found),
            f"{problem}_about": records.about(experiment),
            f"{problem}_runs": str(sum(row["runs"] for row in clean)),
            f"{problem}_bad": str(sum(row["collapsed"] for row in clean)),
            f"{problem}_ra": percent(min(row["lowest_ra"] for row in clean), 1),
            f"{problem}_nine": percent(min(row["ua_at_0.9"] for row in clean), 1),
            f"{problem}_rho": f"{min(row['rho'] for row in clean):.3f}",
            f"{problem}_error": percent(max(row["error"] for row in clean), 1),
            f"{problem}_paper_runs": str(sum(row["runs"] for row in paper)),
            f"{problem}_paper_diverged": str(sum(row["diverged"] for row in paper)),
            f"{problem}_paper_collapsed": str(sum(row["collapsed"] for row in paper)),
        }
    return values


def _figures(records: Records) -> dict[str, Figure]:
    from benchmarks.results.pictures import dial_figure

    return {"dial.png": dial_figure({name: records.runs(found) for name, found in PROBLEMS.items()})}


PAGE = Page(name="control", values=_values, figures=_figures)
