"""Depth: does a forgotten class come back when the model is fine-tuned on retained data only?

python benchmarks/depth.py --problem digits --classes 3
python benchmarks/depth.py --problem cifar10-small --classes 0 --rates 0.01 --models runs/results/depth-models
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gradpivot import (
    CUP,
    EPO,
    FT,
    GA,
    RL,
    SCRUB,
    SSD,
    STCH,
    WS,
    BadTeacher,
    CFk,
    Delete,
    EUk,
    ForgetSplit,
    L1Sparse,
    NegGradPlus,
    SalUn,
    SFRon,
    WarmRestart,
)  # fmt: skip
from gradpivot.auditing import Subject
from gradpivot.auditing.attacks.features import head_pass
from gradpivot.data import Loader, cut
from gradpivot.dial import Segment
from gradpivot.evaluate import (
    matching_test_indices,
    predictions,
    recovery_ways,
    relearn_plan,
    relearned_correctness,
    repeated_batches,
)
from gradpivot.experiments import Problem, find_problem
from gradpivot.experiments.recipes.recipe import filled
from gradpivot.loop import Loop, apply_policy, has_batchnorm
from gradpivot.methods import Method
from gradpivot.models import load_weights, save_weights
from gradpivot.runs import train_original

STEPS = (0, 5, 20, 100, 300)
_POINTS = (0.25, 0.5, 0.75)
_SAMPLES = 1000


def methods(problem: Problem, passes: int) -> dict[str, list[Method]]:
    """What is compared; a list is run one after the other, each on the result of the one before.

    Args:
        problem: Gives settings such as the batch size.
        passes: Passes over the retain set of the methods that need whole ones.
    """
    tune = FT(lr=0.1, epochs=1)
    found: dict[str, list[Method]] = {
        "CUP γ = 1": [CUP(gamma=1)],
        "CUP γ = 1, then one epoch of fine-tuning": [CUP(gamma=1), tune],
        "WS": [WS()],
        "GA": [GA(lr=5e-3)],
        "RL": [RL()],
        "SalUn": [SalUn()],
        "NegGrad+": [NegGradPlus()],
        "SCRUB": [SCRUB()],
        "Bad Teacher": [BadTeacher()],
        "SSD": [SSD()],
        "SFRon": [SFRon()],
        "DELETE": [Delete()],
        "STCH": [STCH()],
        "EPO": [EPO()],
        "ℓ1-sparse": [L1Sparse(epochs=passes, alpha=1e-4)],
        "EU-k, k = 1": [EUk(k=1, epochs=passes)],
        "EU-k, k = 3": [EUk(k=3, epochs=passes)],
        "CF-k, k = 3": [CFk(k=3, epochs=passes)],
        "FT": [replace(tune, epochs=passes)],
        "Warm restart": [WarmRestart(epochs=passes)],
    }
    if has_batchnorm(problem.model()):
        for policy in ("frozen", "train"):
            found[f"CUP γ = 1, batchnorm={policy}"] = [replace(CUP(gamma=1), batchnorm=policy)]
    return {name: [filled(method, problem.settings) for method in line] for name, line in found.items()}


def measured(model: nn.Module, subject: Subject, rates: list[float]) -> dict[str, Any]:
    """Recovery curves on unseen images of the class, and how far the model is from the original."""
    split, task = subject.split, subject.task
    assert subject.original is not None

    def predict(candidate: nn.Module, dataset: Any, indices: np.ndarray) -> Any:
        return predictions(candidate.eval(), dataset, indices, task)

    def correct(dataset: Any, indices: np.ndarray) -> float:
        return float(predict(model, dataset, indices).correct.mean())

    relearned = relearned_correctness(model, split, task, relearn_plan(split), predict)
    return {
        "ra": correct(split.train, split.retain_indices[:: max(1, len(split.retain_indices) // 10_000)]),
        "ua": 1 - correct(split.train, split.forget_indices),
        "ta": correct(split.test, split.test_indices),
        "recovery": [
            {"rate": rate, "batchnorm": way, "recognised": _curve(model, subject, rate, way)}
            for rate in rates
            for way in recovery_ways(model)
        ],
        "relearn": float(relearned.mean()),
        "distance": _distance(model, subject.original),
        "barrier": _barrier(model, subject),
        "cka": _cka(model, subject),
    }


def _curve(model: nn.Module, subject: Subject, rate: float, way: str) -> list[float]:
    """Share of unseen images of the class recognised after each number of steps."""
    split, pupil = subject.split, copy.deepcopy(model)
    unseen = matching_test_indices(split)

    def recognised() -> float:
        return float(subject.outputs_at(pupil, split.test, unseen).correct.mean())

    found = [recognised()]
    order = repeated_batches(split.retain_indices, 64, STEPS[-1], 0, "finetune")
    optimizer = torch.optim.SGD(pupil.parameters(), lr=rate, momentum=0.9)
    for step, batch in enumerate(Loader(split.train, torch.device("cpu"), seed=0).batches(order, epoch=-1), start=1):
        apply_policy(pupil, way)
        loss = subject.task.retain_loss(pupil, batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step in STEPS:
            found.append(recognised())
    return found


def _distance(model: nn.Module, original: nn.Module) -> float:
    pairs = zip(model.parameters(), original.parameters(), strict=True)
    return math.sqrt(math.fsum(float((a - b).detach().double().square().sum()) for a, b in pairs))


@torch.no_grad()
def _barrier(model: nn.Module, subject: Subject) -> float:
    """Largest rise of L_r above the chord on the line to the original, in nats."""
    split, between = subject.split, copy.deepcopy(model)
    assert subject.original is not None
    line = Segment(subject.original)
    line.set_end(model)
    order = cut(split.retain_indices[:: max(1, len(split.retain_indices) // _SAMPLES)], 256)

    def loss(share: float) -> float:
        line.interpolate(between, share)
        batches = subject.batches(between.eval(), split.train, order)
        return float(np.mean([subject.task.retain_loss(between, batch).item() for batch in batches]))

    start, end = loss(0.0), loss(1.0)
    return max(0.0, *(loss(share) - (1 - share) * start - share * end for share in _POINTS))


def _cka(model: nn.Module, subject: Subject) -> float:
    """Linear CKA of the last layer's inputs on the forgotten class, with the original's."""
    assert subject.original is not None
    records = subject.split.forget_indices[:_SAMPLES]
    mine, theirs = (head_pass(subject, m, records).inputs for m in (model, subject.original))
    x, y = (features - features.mean(axis=0) for features in (mine, theirs))
    scale = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return float(np.linalg.norm(x.T @ y) ** 2 / scale) if scale else 0.0


def _kept(file: Path, model: nn.Module, make: Callable[[], nn.Module]) -> nn.Module:
    """A model from its file, or made and kept there."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        save_weights(make(), file)
    load_weights(model, file)
    return model.eval()


def compare(
    problem: Problem, label: int, rates: list[float], passes: int, models: Path, only: list[str]
) -> dict[str, Any]:
    """Run every method and measure it, the original and the retrained model."""
    train, test = problem.load()
    split = ForgetSplit.by_class(train, test, label)
    original = _kept(models / f"{problem.name}.safetensors", problem.model(), lambda: train_original(problem, split, 0))
    subject = Subject(model=original, split=split, original=original)
    loop = Loop(seed=1, factory=problem.model)
    retrained = _kept(
        models / f"{problem.name}-without-{label}.safetensors",
        problem.model(),
        lambda: loop.run(problem.training, problem.model(), problem.task, split).model,
    )
    training = problem.training.epochs * len(split.retain_indices)
    lines = {name: line for name, line in methods(problem, passes).items() if not only or name in only}
    found: list[dict[str, Any]] = []
    for name, model in {"original": original, "retrained": retrained}.items():
        if not only or name in only:
            found.append({"method": name, "cost": None if name == "original" else 1.0})
            found[-1] |= measured(model, subject, rates)
    runs: dict[tuple[Method, ...], nn.Module] = {(): original}
    for name, line in lines.items():
        for done in range(len(line)):
            if (now := tuple(line[: done + 1])) not in runs:
                loop = Loop(seed=0, factory=problem.model)
                runs[now] = loop.run(line[done], runs[tuple(line[:done])], problem.task, split).model.eval()
        cost = sum(method.gradients(split) for method in line) / training
        found.append({"method": name, "cost": cost} | measured(runs[tuple(line)], subject, rates))
        print(name, {k: v for k, v in found[-1].items() if k in ("ra", "ua", "ta")}, file=sys.stderr, flush=True)
    sizes = {"n_forget": len(split.forget_indices), "n_retain": len(split.retain_indices)}
    return {"problem": problem.name, "class": label, "steps": STEPS, "passes": passes, **sizes, "rows": found}


def main() -> None:
    """Run the comparison and print it, as JSON with --json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", default="digits")
    parser.add_argument("--classes", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.01, 0.05])
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--models", type=Path, default=Path("runs/results/depth-models"))
    parser.add_argument("--only", nargs="*", default=[], help="names of rows; all by default")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    problem = find_problem(options.problem)
    found = compare(problem, options.classes, options.rates, options.passes, options.models, options.only)
    if options.json:
        print(json.dumps(found))
        return
    for row in found["rows"]:
        curves = " | ".join(" ".join(f"{100 * v:.1f}" for v in c["recognised"]) for c in row["recovery"])
        print(f"{row['method']:45s} RA {row['ra']:.3f} UA {row['ua']:.3f} TA {row['ta']:.3f}  {curves}")


if __name__ == "__main__":
    main()
