"""The toy experiment: an original and three unlearned networks, with their decision regions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gradpivot.data import ForgetSplit
from gradpivot.errors import GradPivotError
from gradpivot.experiments.problems.toy import FORGOTTEN, toy, toy_methods
from gradpivot.runs import train_original
from gradpivot.runtime import environment

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.experiments.problem import Problem

__all__ = ["ToyOutcome", "run_toy"]

_EXTENT = (-10.0, 10.0, -9.0, 10.0)
_RESOLUTION = 400
_DRAWN = 1000

MAX_DROP = 0.02
"""Largest accuracy drop of another class that counts as kept."""
MAX_LEFT = 0.05
"""Largest remaining accuracy of the forgotten class that counts as forgotten."""


@dataclass(frozen=True)
class ToyOutcome:
    """Panels of one seed, and accuracies of that seed and over many."""

    panels: list[dict[str, Any]]
    summary: dict[str, Any]

    def table(self) -> str:
        """Test accuracy per class in percent, one line per panel, and the summary over seeds."""
        width = max(len(name) for name in self.summary["accuracy"])
        head = f"{'test accuracy in %':<{width}}" + "".join(f"{f'class {c}':>9}" for c in range(5))
        rows = [
            f"{name:<{width}}" + "".join(f"{100 * share:>9.1f}" for share in shares)
            for name, shares in self.summary["accuracy"].items()
        ]
        over = self.summary["over_seeds"]
        lines = [
            f"{name:<{width}}  {100 * median(facts['worst_drop']):>9.1f}  {100 * median(facts['left']):>9.1f}  "
            f"{sum(_succeeds(facts)):>9}"
            for name, facts in over["methods"].items()
        ]
        note = (
            f"Over {over['seeds']} seeds: median drop of the worst other class in points, median accuracy on class "
            f"{FORGOTTEN} in %,\nand seeds with at most {100 * MAX_DROP:g} points and {100 * MAX_LEFT:g} %:"
        )
        return "\n".join([head, *rows, "", note, *lines])


def _succeeds(facts: dict[str, list[float]]) -> list[bool]:
    """For each seed, whether the class is forgotten and no other class is hurt."""
    pairs = zip(facts["worst_drop"], facts["left"], strict=True)
    return [drop <= MAX_DROP and left <= MAX_LEFT for drop, left in pairs]


def run_toy(seed: int = 0, seeds: int = 20, report: Callable[[int, int], None] | None = None) -> ToyOutcome:
    """Train on five Gaussians, forget one of them with three methods, and map the decision regions.

    Args:
        seed: Seed of the drawn panels.
        seeds: Number of seeds for the summary.
        report: Called with (finished seeds, total seeds).
    """
    if seeds < 1:
        raise GradPivotError(f"--seeds is {seeds}; give 1 or more")
    problem = toy()
    train, test = problem.load()
    split = ForgetSplit.by_class(train, test, FORGOTTEN)
    models = _models(problem, split, seed)
    panels = [_panel(name, model, test.tensors) for name, model in models.items()]
    summary = {
        "schema": "gradpivot.toy/1",
        "forgotten": FORGOTTEN,
        "accuracy": {name: _accuracies(model, test.tensors) for name, model in models.items()},
        "over_seeds": _over_seeds(problem, split, seeds, report),
        "settings": {name: method.to_dict() for name, method in toy_methods().items()},
        "provenance": {"seed": seed, "split": split.facts(), "environment": environment()},
    }
    return ToyOutcome(panels, summary)


def _models(problem: Problem, split: ForgetSplit, seed: int) -> dict[str, nn.Module]:
    original = train_original(problem, split, seed)
    unlearned = {
        name: problem.prepared(original, split, method, seed=seed).outcome().model
        for name, method in toy_methods().items()
    }
    return {"Original": original, **unlearned}


def _over_seeds(
    problem: Problem, split: ForgetSplit, seeds: int, report: Callable[[int, int], None] | None
) -> dict[str, Any]:
    """Accuracy drop of the worst other class and remaining accuracy of the forgotten one, per method and seed."""
    methods: dict[str, dict[str, list[float]]] = {name: {"worst_drop": [], "left": []} for name in toy_methods()}
    for seed in range(seeds):
        shares = {name: _accuracies(model, split.test.tensors) for name, model in _models(problem, split, seed).items()}
        for name, facts in methods.items():
            drops = [before - after for before, after in zip(shares["Original"], shares[name], strict=True)]
            facts["worst_drop"].append(max(d for c, d in enumerate(drops) if c != FORGOTTEN))
            facts["left"].append(shares[name][FORGOTTEN])
        if report:
            report(seed + 1, seeds)
    return {"seeds": seeds, "methods": methods}


@torch.no_grad()
def _accuracies(model: nn.Module, test: tuple[torch.Tensor, ...]) -> list[float]:
    points, labels = test
    correct = model(points).argmax(1) == labels
    return [float(correct[labels == c].double().mean()) for c in range(5)]


@torch.no_grad()
def _panel(title: str, model: nn.Module, test: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    points, labels = test
    left, right, bottom, top = _EXTENT
    x, y = np.meshgrid(np.linspace(left, right, _RESOLUTION), np.linspace(bottom, top, _RESOLUTION))
    grid = torch.tensor(np.stack([x, y], axis=-1).reshape(-1, 2), dtype=torch.float32)
    shares = " ".join(f"{100 * share:.0f}" for share in _accuracies(model, test))
    return {
        "title": title,
        "grid_labels": model(grid).argmax(1).reshape(x.shape).numpy(),
        "extent": _EXTENT,
        "points": points[:_DRAWN].numpy(),
        "labels": labels[:_DRAWN].numpy(),
        "caption": f"accuracy by class, %: {shares}",
        "forgotten": FORGOTTEN,
    }
