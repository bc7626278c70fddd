"""Diffusion: CUP at γ = 0.9 beside SalUn, several seeds of unlearning on the sweep's original.

Does the class come back? A copy of each model is trained on 20 real images of it: all weights, or the embedding of its
label only, which someone with the weights can do as well.

python -m benchmarks.generation --store runs/results/ddpm     after `make results ONLY=ddpm`
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from gradpivot import CUP, ForgetSplit, SalUn
from gradpivot.evaluate import SampleScorer
from gradpivot.experiments import Problem, find_problem
from gradpivot.methods import Method
from gradpivot.sweep import Store, setting_of
from gradpivot.tasks import Sampler

_PROBLEM, _FORGOTTEN = "mnist-ddpm", 3
_ADAM: dict[str, Any] = {"optimizer": "adam", "lr": 1e-3}
_CUP = CUP(gamma=0.9, iterations=50, **_ADAM)
_ALL_WEIGHTS = "CUP, γ = 0.9, all weights"
METHODS: dict[str, Method | None] = {
    "original": None,
    "CUP, γ = 0.9": _CUP,
    _ALL_WEIGHTS: _CUP,
    "SalUn, saliency = 0.5": SalUn(saliency=0.5, iterations=100, **_ADAM),
}
"""The recipe mnist-ddpm's settings; once with ``Diffusion(forgets="model")``."""
_SHOWN = 20
"""Real images of the forgotten class that an attacker has."""
_RELEARNING: dict[str, tuple[int, float]] = {"all": (20, 1e-3), "label": (60, 0.1)}
"""Steps and learning rate of Adam, for all weights and for the class embedding only."""


def _original(store: Path, name: str) -> tuple[Problem, torch.nn.Module]:
    """A problem and the model that the sweep trained for it."""
    problem = find_problem(name)
    kept = Store(store)
    try:
        state = load_file(kept.original_path(setting_of(name, 1, "cpu").original_key(0)))
    finally:
        kept.close()
    model = problem.model()
    model.load_state_dict(state)
    return problem, model.eval()


def judged(name: str, seed: int, samples: int, store: Path) -> dict[str, Any]:
    """Unlearn with one method and seed, and judge 500 samples of the forgotten class and ``samples`` of each other."""
    torch.set_num_threads(1)
    problem, model = _original(store, _PROBLEM)
    assert problem.judging is not None
    _, classifier = _original(store, problem.judging.classifier)
    judging = replace(problem.judging, samples=samples)
    split = ForgetSplit.by_class(*problem.load(), _FORGOTTEN)
    if name == _ALL_WEIGHTS:
        problem = replace(problem, task=replace(problem.task, forgets="model"))
    method, seconds = METHODS[name], 0.0
    if method is not None:
        outcome = problem.prepared(model, split, method, seed=seed).outcome()
        model, seconds = outcome.model.eval(), outcome.seconds
    scores = SampleScorer(judging, classifier, problem.task).scores(model, split)
    return {
        "model": name, "seed": seed, "left": 1 - scores.ua, "kept": scores.ra, "fd": scores.frechet[0].value,
        "seconds": seconds,
        "relearned": {way: _relearned(model, problem, split, classifier, way) for way in _RELEARNING},
    }  # fmt: skip


def _relearned(
    model: torch.nn.Module, problem: Problem, split: ForgetSplit, classifier: torch.nn.Module, way: str
) -> float:
    """Share of the forgotten class that is recognised again after training on some of its images."""
    pupil, task, (steps, rate) = copy.deepcopy(model).train(), problem.task, _RELEARNING[way]
    chosen = torch.as_tensor(split.forget_indices[:_SHOWN].copy())
    images, labels = (part[chosen].repeat(3, *[1] * (part.ndim - 1)) for part in split.train.tensors)
    trained = pupil if way == "all" else pupil.class_embedding
    optimizer = torch.optim.Adam(trained.parameters(), lr=rate)
    torch.manual_seed(0)
    for _ in range(steps):
        clean, named = task.clean(pupil, (images, labels))
        noisy = task.noised(clean)
        loss = (task.predicted(pupil, noisy, named) - noisy.noise).square().mean()
        pupil.zero_grad()
        loss.backward()
        optimizer.step()
    assert problem.judging is not None
    sampler = Sampler(steps=problem.judging.steps, guidance=problem.judging.guidance)
    drawn = sampler.draw(pupil.eval(), task, [_FORGOTTEN] * 100, range(100))
    with torch.no_grad():
        return float((classifier(drawn).argmax(1) == _FORGOTTEN).float().mean())


def main() -> None:
    """Judge every method and seed, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=Path("runs/results/ddpm"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=500, help="per retained class")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="accepted for symmetry with the other benchmarks")
    given = parser.parse_args()
    several = [name for name, method in METHODS.items() if method and name != _ALL_WEIGHTS]
    wanted = [(name, seed) for name in METHODS for seed in range(given.seeds if name in several else 1)]
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(judged, name, seed, given.samples, given.store) for name, seed in wanted]
        rows = []
        for one in waiting:
            rows.append(one.result())
            sys.stderr.write(f"{rows[-1]}\n")
    print(json.dumps({"samples": given.samples, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
