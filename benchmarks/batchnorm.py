"""What the BatchNorm policy does to unlearning: CUP with train, frozen and recalibrated statistics over a few γ.

    python benchmarks/batchnorm.py [--problem cifar10] [--weights FILE] [--classes 0 1] [--gammas 0 .5 1] [--seeds 1]
                                   [--set lr=0.01 epochs=5] [--json FILE]

Without --problem a small network with BatchNorm on the digits, trained here in a few seconds. --problem takes what
'gradpivot sweep' does (a built-in name or my_module:my_problem); --weights a state dict for its model (.safetensors,
.pt), where the original is not to be trained. Percent, means over classes and seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from gradpivot import CUP, ForgetSplit
from gradpivot.data.readers.digits import load_digits
from gradpivot.evaluate.classifiers.evaluation import PredictionCache, evaluate
from gradpivot.evaluate.metrics.registry import standing_metrics
from gradpivot.evaluate.scores import Scores
from gradpivot.experiments.problem import Problem, find_problem
from gradpivot.loop.normalisation import POLICIES
from gradpivot.methods.retrain import Retrain
from gradpivot.models.checkpoints.weights import load_weights
from gradpivot.runs.original import train_original
from gradpivot.runs.run import run_method


class SmallBatchNormCNN(nn.Module):
    """SmallCNN's two convolutions, each with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.conv2, self.bn2 = nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.linear = nn.Linear(32 * 16, 10)

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.relu(self.bn1(self.conv1(images)))
        hidden = torch.max_pool2d(torch.relu(self.bn2(self.conv2(hidden))), 2)
        return self.linear(hidden.flatten(1))


def digits() -> Problem:
    return Problem(
        name="digits, BatchNorm",
        load=load_digits,
        model=SmallBatchNormCNN,
        training=Retrain(lr=0.05, epochs=10, batch_size=64, momentum=0.9, weight_decay=5e-4, schedule="cosine"),
        settings={"batch_size": 8},
    )


def original_of(problem: Problem, weights: Path | None, split: ForgetSplit, seed: int) -> nn.Module:
    if weights is None:
        return train_original(problem, split, seed)
    model = problem.model()
    if weights.suffix == ".safetensors":
        load_weights(model, weights)
    else:
        model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return model.eval()


def measured(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    problem = find_problem(chosen.problem) if chosen.problem else digits()
    task, (train, test) = problem.task, problem.load()
    settings = {**problem.settings, **dict(map(setting, chosen.set))}
    rows: dict[tuple[str, float | None], list[Scores]] = {}
    for seed in range(chosen.seeds):
        model, cache = None, PredictionCache()
        for label in chosen.classes:
            split = ForgetSplit.by_class(train, test, label, target=getattr(task, "target_of", None))
            model = model or original_of(problem, chosen.weights, split, seed)
            told = evaluate(model, split, task, retain_scored=problem.retain_scored, cache=cache)
            rows.setdefault(("original", None), []).append(told)
            for policy in POLICIES:
                for gamma in chosen.gammas:
                    method = CUP(**{**settings, "gamma": gamma, "batchnorm": policy})
                    result = run_method(model, split, method, replace(problem.running, seed=seed))
                    rows.setdefault((policy, gamma), []).append(result.scores)
    return [
        {"policy": policy, "gamma": gamma, "runs": len(scores)}
        | {name: statistics.mean(getattr(s, name) for s in scores) for name in standing_metrics()}
        for (policy, gamma), scores in rows.items()
    ]


def setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, yaml.safe_load(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--classes", type=int, nargs="+", default=[0])
    parser.add_argument("--gammas", type=float, nargs="+", default=[0.0, 0.25, 0.5, 0.75, 1.0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of CUP")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    chosen = parser.parse_args()
    rows = measured(chosen)
    print("| BatchNorm | γ | RA | UA | TA | MIA |\n|---|---|---|---|---|---|")
    for row in rows:
        numbers = " | ".join(f"{100 * row[name]:.2f}" for name in standing_metrics())
        gamma = "" if row["gamma"] is None else row["gamma"]
        print(f"| {row['policy']} | {gamma} | {numbers} |")
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
