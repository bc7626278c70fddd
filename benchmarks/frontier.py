"""The frontier of one run against a sweep's, and the choice without a retrained model against the choice with one.

For each forget set and seed: an original, a retrained model, a run of CUP for each of 20 γ (0.05, …, 1), and a quick
trace. Told are

- ε: how far the quick frontier must be raised to dominate the sweep's, in the (RA, UA) plane, in points of percent; for
  random subsets in the plane of 1 − |gap to the retrained model|, as H is taken there, and beside it in the raw one;
- its cost as a share of the sweep's, every gradient and every forward pass (a third) of a sample counted, scoring on
  both sides ("alone": scoring left out of the sweep's);
- the regret of ``recommend`` in points of Δ: Δ(chosen) − Δ(the nearest to the retrained model), on the half of the test
  data that had no part in the choice; with RA, UA, TA and MIA, and without MIA.

Claims: ε ≤ 2 points at ≤ 30 % of the cost; median regret ≤ 2 points.

    python benchmarks/frontier.py [--problem digits] [--forget 3 8 random] [--seeds 3] [--gammas 20]
                                  [--store FOLDER] [--json]

What is in the store is not done again, so that a killed benchmark continues. A minute for each forget set and seed of
digits on a quiet core.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gradpivot import CUP, Classification, ForgetSplit, trace
from gradpivot.evaluate.classifiers.evaluation import evaluate
from gradpivot.evaluate.metrics.registry import standing_metrics
from gradpivot.evaluate.scores import Scores
from gradpivot.experiments.problem import Problem, find_problem
from gradpivot.results.frontier import Frontier, Point
from gradpivot.results.pareto import distance, epsilon_to
from gradpivot.runs.original import original_model
from gradpivot.runs.run import run_method
from gradpivot.runtime.atomic import write_text
from gradpivot.runtime.provenance import code_digest
from gradpivot.targets.looking import FORWARD

PLANE = ("ra", "ua")
POINTS = (5, 11, 20)


@dataclass(frozen=True)
class Counting(Classification):
    """Counts what passes through the model: a sample with its gradient is 1, without it a third."""

    spent: dict[str, float] = field(default_factory=lambda: {"passes": 0.0, "scoring": 0.0}, compare=False)

    def logits(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        told = super().logits(model, batch)
        self.spent["passes"] += len(told[1]) * (1.0 if torch.is_grad_enabled() else FORWARD)
        return told

    def predict(self, model: nn.Module, batch: Any) -> Any:
        before = self.spent["passes"]
        told = super().predict(model, batch)
        self.spent["scoring"] += self.spent["passes"] - before
        return told


def split_of(problem: Problem, what: str, seed: int) -> ForgetSplit:
    train, test = problem.load()
    if what == "random":
        return ForgetSplit.random(train, test, 0.1, seed=seed).with_validation()
    return ForgetSplit.by_class(train, test, int(what)).with_validation()


def cell(problem: Problem, what: str, seed: int, gammas: Sequence[float], folder: Path) -> dict[str, Any]:
    """All numbers of one forget set and seed."""
    split = split_of(problem, what, seed)
    model = original_model(problem, split, seed, folder / f"original-{problem.name}-{seed}.safetensors")
    scored = {"retain_scored": problem.retain_scored}
    retrained = run_method(model, split, problem.training, replace(problem.running, seed=seed)).scores
    settings = {name: value for name, value in problem.settings.items() if hasattr(CUP(), name)}
    counted = Counting()
    sweep = trace(model, split, CUP(**settings), gammas=gammas, seed=seed, task=counted, reference=retrained, **scored)
    found: dict[str, Any] = {
        "problem": problem.name,
        "forget": what,
        "seed": seed,
        "retrained": retrained.to_dict(),
        "original": evaluate(model, split, Classification(), **scored).to_dict(),
        "sweep": [p.scores.to_dict() for p in sweep.points],
        "sweep_cost": counted.spent,
        "sweep_choice": regret(sweep, retrained),
        "quick": {},
    }
    for points in POINTS:
        counted = Counting()
        quick = trace(
            model,
            split,
            CUP(**settings),
            quick=True,
            points=points,
            seed=seed,
            task=counted,
            reference=retrained,
            **scored,
        )
        spent = dict(counted.spent)
        found["quick"][str(points)] = {
            "points": [p.scores.to_dict() for p in quick.points],
            "gammas": [p.knob for p in quick.points],
            "shares": list(quick.shares),
            "cost": spent,
            "told_cost": quick.cost.total if quick.cost else None,
            "choice": regret(quick, retrained),
        }
    return found


def regret(traced: Any, retrained: Scores) -> dict[str, Any]:
    """What the choice without the retrained model loses, with and without MIA."""
    choice = traced.recommend()
    told: dict[str, Any] = {"chosen": choice.result.method.gamma, "expected": choice.expected}
    for name, metrics in (("with_mia", standing_metrics()), ("without_mia", standing_metrics(attacks=False))):
        deltas = [distance(r.scores.vector(metrics), retrained.vector(metrics)) for r in traced.results]
        told[name] = deltas[choice.index] - min(deltas)
        told[f"mean_{name}"] = statistics.fmean(deltas) - min(deltas)
    return told


def epsilon(found: dict[str, Any], quick: list[dict[str, Any]], raw: bool) -> float:
    kind = "random" if found["forget"] == "random" and not raw else "class"
    reference = Scores.from_dict(found["retrained"])

    def vectors(rows: list[dict[str, Any]]) -> list[tuple[float, ...]]:
        points = [Point(label="", settings={}, scores=Scores.from_dict(row)) for row in rows]
        return Frontier(name="", method=None, points=points, reference=reference, kind=kind).vectors(PLANE)

    return epsilon_to(vectors(quick), vectors(found["sweep"]))


def summary(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each forget set and number of points, over seeds."""
    rows = []
    for what in dict.fromkeys(found["forget"] for found in cells):
        own = [found for found in cells if found["forget"] == what]
        for points in map(str, POINTS):
            quick = [found["quick"][points] for found in own]
            pairs = list(zip(own, quick, strict=True))
            costs = [(q["cost"], f["sweep_cost"]) for f, q in pairs]
            rows.append(
                {
                    "forget": what,
                    "points": int(points),
                    "seeds": len(own),
                    "epsilon": max(epsilon(f, q["points"], raw=False) for f, q in pairs),
                    "epsilon_raw": max(epsilon(f, q["points"], raw=True) for f, q in pairs),
                    "cost": max(q["passes"] / s["passes"] for q, s in costs),
                    "cost_alone": max(q["passes"] / (s["passes"] - s["scoring"]) for q, s in costs),
                    "regret": [q["choice"]["with_mia"] for q in quick],
                    "regret_without_mia": [q["choice"]["without_mia"] for q in quick],
                    "sweep_regret": [f["sweep_choice"]["with_mia"] for f in own],
                    "sweep_regret_without_mia": [f["sweep_choice"]["without_mia"] for f in own],
                    "sweep_mean_regret": [f["sweep_choice"]["mean_with_mia"] for f in own],
                }
            )
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    heads = ["forget", "points", "seeds", "worst ε", "worst ε, raw", "cost", "cost, alone", "regret",
             "without MIA", "of the sweep", "without MIA", "a random γ"]  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        medians = [
            statistics.median(row[name])
            for name in (
                "regret",
                "regret_without_mia",
                "sweep_regret",
                "sweep_regret_without_mia",
                "sweep_mean_regret",
            )
        ]
        numbers = [row["epsilon"], row["epsilon_raw"], row["cost"], row["cost_alone"], *medians]
        cells = [row["forget"], str(row["points"]), str(row["seeds"]), *(f"{100 * n:.2f}" for n in numbers)]
        lines.append("| " + " | ".join(cells) + " |")
    every = [r for row in rows if row["points"] == POINTS[1] for r in row["regret"]]
    sweep = [r for row in rows if row["points"] == POINTS[1] for r in row["sweep_regret"]]
    lines += ["", "ε and regrets in points of percent, cost in percent of the sweep's; regrets are medians over seeds."]
    lines.append(
        f"Median regret over all: {100 * statistics.median(every):.2f} on quick traces, "
        f"{100 * statistics.median(sweep):.2f} on sweeps."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", default="digits")
    parser.add_argument("--forget", nargs="+", default=["3", "8", "random"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--gammas", type=int, default=20)
    parser.add_argument("--store", type=Path, default=Path("runs/frontier"))
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    problem = find_problem(chosen.problem)
    gammas = [round(float(g), 4) for g in np.linspace(0, 1, chosen.gammas + 1)[1:]]
    # What another version computed is not taken for this one's.
    folder = chosen.store / code_digest()
    folder.mkdir(parents=True, exist_ok=True)
    cells = []
    for what in chosen.forget:
        for seed in range(chosen.seeds):
            file = folder / f"{chosen.problem}-{what}-{seed}-{chosen.gammas}.json"
            if not file.exists():
                write_text(file, json.dumps(cell(problem, what, seed, gammas, folder)))
            cells.append(json.loads(file.read_text(encoding="utf-8")))
    rows = summary(cells)
    print(json.dumps(rows, indent=2) if chosen.json else markdown(rows))


if __name__ == "__main__":
    main()
