"""Does γ keep its promise? The lines of docs/results/control.md, from the runs of a resumable sweep.

    python benchmarks/control.py digits --store runs/control-digits [--jobs 2] [--no-run] [--json]

Runs the recipe ``control-PROBLEM`` (what is finished is not run again), then says for our defaults and the printed
form: how many runs were not finite or lost more than a tenth of RA, how much γ = 0.9 forgets at each rate, whether UA
follows γ (Spearman's ρ, the largest jump between tenths), how near it comes to the degree that was asked for, and on
which share of steps a loss really rose. The digits take some 15 minutes of one core, MNIST an hour, CIFAR-10 with the
small network two hours and its original and reference another.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from gradpivot.dial.ramp import asked_degree
from gradpivot.experiments.problem import find_problem
from gradpivot.experiments.recipes.reading import load_recipe
from gradpivot.results._estimate import spearman
from gradpivot.results.record import Record
from gradpivot.sweep.store.store import Store

SAFE = 0.9
"""RA may fall to this share of the original's, for γ up to 0.9."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", choices=("digits", "mnist", "cifar10"))
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--no-run", action="store_true", help="only what the store has")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if not asked.no_run:
        command = [sys.executable, "-m", "gradpivot", "sweep", f"control-{asked.problem}"]
        subprocess.run([*command, "--store", asked.store, "--jobs", str(asked.jobs)], check=True)
    rows = rows_of(of_one_setting(asked_for(f"control-{asked.problem}", Store(asked.store).records())))
    sys.stdout.write(json.dumps(rows, indent=1) + "\n" if asked.json else table(rows))


def asked_for(name: str, records: Sequence[Record]) -> list[Record]:
    """The records that the recipe asks for: other sweeps may have put theirs into the same store."""
    recipe = load_recipe(name)
    recipe = recipe.suited(find_problem(recipe.problem).settings)
    spaces = {(s.protocol, s.name): [method.to_dict() for method in s.methods] for s in recipe.series}

    def belongs(record: Record) -> bool:
        space = spaces.get((record.protocol, record.series), ())
        # Runs of an older version lack the settings that came later.
        return any({**method, **record.point.settings} == method for method in space)

    return [r for r in records if r.kind == "class" and (r.role != "run" or belongs(r))]


def of_one_setting(records: Sequence[Record]) -> list[Record]:
    """The records, if they are all of one version, data and network: others do not belong into one row."""
    settings = {json.dumps(r.provenance["cell"]["setting"], sort_keys=True) for r in records}
    if len(settings) > 1:
        raise SystemExit(f"the store has runs of {len(settings)} versions or networks; give each a store of its own")
    return list(records)


def rows_of(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One row for each protocol, series and learning rate."""
    originals = {(r.forget, r.seed): r.point.scores for r in records if r.role == "original"}
    lines: dict[tuple[str, str, float], list[Record]] = defaultdict(list)
    for record in records:
        if record.role == "run" and record.method == "cup":
            lines[record.protocol, record.series, record.point.settings["lr"]].append(record)
    return [
        {"protocol": protocol, "series": series, "lr": lr, **_row(found, originals)}
        for (protocol, series, lr), found in sorted(lines.items())
    ]


def _row(records: Sequence[Record], originals: dict[Any, Any]) -> dict[str, Any]:
    seeds = defaultdict(list)
    for record in sorted(records, key=lambda r: r.point.knob or 0.0):
        seeds[record.forget, record.seed].append(record)
    below = [r for r in records if (r.point.knob or 0.0) <= SAFE + 1e-9]
    kept = [r.point.scores.ra / originals[r.forget, r.seed].ra for r in below if not r.point.diverged]
    at_nine = [r.point.scores.ua for r in records if r.point.knob == 0.9 and not r.point.diverged]
    told = [r.provenance.get("telemetry", {}) for r in records]
    return {
        "runs": len(records),
        "not_finite": sum(r.point.diverged is not None for r in records),
        "collapsed": sum(share < SAFE for share in kept) + sum(r.point.diverged is not None for r in below),
        "least_ra": min(kept, default=None),
        "ua_at_0.9": min(at_nine, default=None),
        "rho": min((rho for s in seeds.values() if (rho := _rho(s)) is not None), default=None),
        "jump": max((_jump(s) for s in seeds.values()), default=None),
        "off": max((_off(s, originals[place].ua) for place, s in seeds.items()), default=None),
        "rose": _mean(told, "rose_retain"),
        "taken_back": _mean(told, "taken_back"),
    }


def _finite(records: Sequence[Record]) -> list[Record]:
    return [r for r in records if r.point.diverged is None]


def _rho(records: Sequence[Record]) -> float | None:
    found = _finite(records)
    return spearman([r.point.knob or 0.0 for r in found], [r.point.scores.ua for r in found])


def _jump(records: Sequence[Record]) -> float:
    """The largest change of UA between neighbouring tenths of γ."""
    tenths = [r for r in _finite(records) if abs(10 * (r.point.knob or 0.0) % 1 - 0.5) > 0.4]
    near = [(a, b) for a, b in pairwise(tenths) if (b.point.knob or 0.0) - (a.point.knob or 0.0) < 0.11]
    return max((abs(b.point.scores.ua - a.point.scores.ua) for a, b in near), default=0.0)


def _off(records: Sequence[Record], start: float) -> float:
    """The largest difference between UA and the degree that γ asks for."""
    asked = [(r, start + (1 - start) * asked_degree(r.point.knob or 0.0)) for r in _finite(records)]
    return max((abs(r.point.scores.ua - degree) for r, degree in asked), default=0.0)


def _mean(told: Sequence[dict[str, Any]], name: str) -> float | None:
    known = [t[name] for t in told if name in t]
    return fmean(known) if known else None


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown, in percent."""
    head = (
        "| protocol | CUP | λ | runs | not finite | collapsed, γ ≤ 0.9 | least RA of the original's % | least UA at "
        "γ = 0.9 % | least ρ(γ, UA) | largest jump | UA off by at most | L_r rose % of steps | taken back % |"
    )
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    for row in rows:
        numbers = [_percent(row[name]) for name in ("least_ra", "ua_at_0.9")]
        numbers.append("" if row["rho"] is None else f"{row['rho']:.3f}")
        numbers += [_percent(row[name]) for name in ("jump", "off", "rose", "taken_back")]
        first = [row["protocol"], row["series"], f"{row['lr']:g}", row["runs"], row["not_finite"], row["collapsed"]]
        lines.append("| " + " | ".join(str(cell) for cell in [*first, *numbers]) + " |")
    return "\n".join(lines) + "\n"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


if __name__ == "__main__":
    main()
