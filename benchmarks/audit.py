"""Audits: do the planted cases come out as they must, and how do the methods fare against shadow models?

python benchmarks/audit.py planted            20 retrained models and the fakes on digits: some minutes
python benchmarks/audit.py methods --problem digits --classes 3 --worlds 16
python benchmarks/audit.py methods --problem benchmarks.audit:fashion --fraction 0.1 --worlds 16
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import CUP, ForgetSplit, audit
from gradpivot.auditing import Subject, Worlds, run_worlds, target_of
from gradpivot.auditing.attacks.finetuning import FINETUNE
from gradpivot.auditing.attacks.klom import KLOM
from gradpivot.auditing.attacks.relearning import RELEARN_5
from gradpivot.auditing.attacks.ulira import ULIRA, ULIRA_TPR
from gradpivot.data import load_fashion_mnist
from gradpivot.experiments import Problem, find_problem
from gradpivot.methods import Method, Retrain, list_methods, make_method
from gradpivot.runs import train_original
from gradpivot.testing import Masked, destroyed, memorised

_LEFT_OUT = ("retrain", "sa")
"""The reference itself, and a method for generators."""


def fashion() -> Problem:
    """A CNN on 5,000 Fashion-MNIST images, trained to over 99 % on them, so that membership leaks."""

    def load() -> tuple[TensorDataset, TensorDataset]:
        train, test = load_fashion_mnist()
        return tuple(TensorDataset(*(t[:n] for t in data.tensors)) for data, n in ((train, 5000), (test, 5000)))

    training = Retrain(lr=0.1, epochs=30, batch_size=64, momentum=0.9, weight_decay=0, schedule="cosine")
    settings = {"batch_size": 64, "augment": "none"}
    return replace(find_problem("fashion-mnist"), name="fashion-5000", load=load, training=training, settings=settings)


def planted(seeds: int, level: str) -> dict[str, Any]:
    """Outcomes of the audit for models of known answer, on a class and on records of digits."""
    problem = find_problem("digits")
    train, test = problem.load()
    splits = {"class 3": ForgetSplit.by_class(train, test, 3), "random 10 %": ForgetSplit.random(train, test, 0.1)}
    found: dict[str, Any] = {"level": level, "seeds": seeds, "cases": []}
    for forget, split in splits.items():
        original = train_original(problem, split, 0)
        retrained = [_retrained(problem, original, split, seed) for seed in range(1, seeds + 1)]
        cases: dict[str, list[nn.Module]] = {
            "original": [original],
            "retrained": retrained,
            "random labels memorised": [memorised(original, split)],
            "destroyed": [destroyed(original, scale=4)],
        }
        if split.kind == "class":
            cases["logit masked"] = [Masked(original, split.classes)]
        for case, models in cases.items():
            # Each retrained model has the next one as its control; the others have the first.
            controls = [*retrained[1:], retrained[0]] if case == "retrained" else retrained
            audits = [
                audit(model, split, original=original, retrain=control, level=level)
                for model, control in zip(models, controls, strict=False)
            ]
            _say(f"{forget}, {case}: {len(audits)} audited")
            outcomes = {q: dict(Counter(one.verdicts[q].outcome for one in audits)) for q in audits[0].verdicts}
            caught = Counter(f.title for one in audits for f in one.attacks if f.outcome == "distinguishable")
            found["cases"].append({"forget": forget, "case": case, "outcomes": outcomes, "caught_by": dict(caught)})
            if case == "retrained":
                found.setdefault("noise", {})[forget] = _noise(audits)
    return found


def _noise(audits: list[Any]) -> dict[str, float]:
    """Standard deviation over retrained models of every attack's difference to the control."""
    differences: dict[str, list[float]] = {}
    for one in audits:
        for found in one.attacks:
            if found.difference is not None:
                differences.setdefault(found.name, []).append(found.difference)
    return {name: statistics.stdev(some) for name, some in differences.items() if len(some) > 1}


def _retrained(problem: Problem, original: nn.Module, split: ForgetSplit, seed: int) -> nn.Module:
    return problem.prepared(original, split, problem.training, seed=seed).outcome().model.eval()


def methods(path: str, split: ForgetSplit, chosen: dict[str, Method], worlds: int, store: Path, jobs: int) -> Any:
    """U-LiRA, KLoM, tampering, TA and cost of every method."""
    problem = find_problem(path)
    found = run_worlds(path, target_of(split), chosen, count=worlds, store=store, jobs=jobs, watch=_watch())
    original = train_original(problem, split, 0)
    control = _retrained(problem, original, split, 1001)
    base = Subject(model=original, split=split, original=original, retrained=(control,))
    any_method = next(iter(found.values()))
    rows = [world_row("Original", any_method, split, "shadow"), world_row("Retrained", any_method, split, "retrained")]
    for name, method in chosen.items():
        row = world_row(name, found[name], split, "unlearned")
        result = problem.prepared(original, split, method).run()
        if not result.diverged:
            subject = replace(base, model=result.model)
            row |= {f"{attack.name}_difference": attack.run(subject).difference for attack in (RELEARN_5, FINETUNE)}
        rows.append(row)
        _say(f"{name} audited")
    facts = {"problem": problem.name, "worlds": worlds, "n_forget": len(split.forget_indices), "kind": split.kind}
    return {**facts, "classes": list(split.classes), "rows": rows}


def world_row(name: str, worlds: Worlds, split: ForgetSplit, role: str) -> dict[str, Any]:
    """One line of a table from the margins and scores of all worlds; ``role`` is whose margins are attacked."""
    attacked = replace(worlds, unlearned=getattr(worlds, role), method=name)
    # The attacks of this table read the worlds only.
    subject = Subject(model=nn.Identity(), split=split, worlds=attacked)
    row: dict[str, Any] = {"method": name, "worlds": len(worlds.inside), "diverged": worlds.diverged}
    if len(worlds.inside) < 4:
        return row
    auc, tpr, klom = (attack.run(subject) for attack in (ULIRA, ULIRA_TPR, KLOM))
    key = {"shadow": "original", "retrained": "retrained", "unlearned": "run"}[role]
    scores, seconds = worlds.scores, worlds.seconds
    return row | {
        "auc": auc.value, "auc_error": auc.error, "auc_interval": auc.interval, "tpr": tpr.value, "klom": klom.value,
        "klom_floor": klom.control, **{metric: scores[key][metric] for metric in ("ra", "ua", "ta")},
        "ta_change": scores[key]["ta"] - scores["retrained"]["ta"],
        "cost": seconds.get(key, np.nan) / seconds["retrained"] if role != "shadow" else None,
    }  # fmt: skip


def _watch() -> Any:
    last = [-1]

    def watch(state: Any) -> None:
        if state.done // 50 != last[0]:
            last[0] = state.done // 50
            _say(f"{state.done} of {state.total} runs")

    return watch


def _chosen(names: list[str]) -> dict[str, Method]:
    kept = [name for name in names or list_methods() if name not in (*_LEFT_OUT, "cup")]
    found: dict[str, Method] = {"CUP γ = 0.5": CUP(gamma=0.5), "CUP γ = 1": CUP(gamma=1.0)}
    for name in kept:
        method = make_method({"method": name})
        found[method.title] = method
    return found


def _say(line: str) -> None:
    sys.stderr.write(f"audit: {line}\n")
    sys.stderr.flush()


def main() -> None:
    """Run one part and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["planted", "methods"])
    parser.add_argument("--seeds", type=int, default=20, help="retrained models")
    parser.add_argument("--level", default="standard")
    parser.add_argument("--problem", default="digits")
    parser.add_argument("--classes", type=int, nargs="*", default=[])
    parser.add_argument("--fraction", type=float, default=0.1)
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--methods", nargs="*", default=[], help="these besides CUP; all by default")
    parser.add_argument("--store", type=Path, default=Path("runs/results/audit-worlds"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="accepted for symmetry with the other benchmarks")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.part == "planted":
        found = planted(given.seeds, given.level)
    else:
        train, test = find_problem(given.problem).load()
        split = (
            ForgetSplit.by_class(train, test, given.classes)
            if given.classes
            else ForgetSplit.random(train, test, given.fraction).with_validation()
        )
        found = methods(given.problem, split, _chosen(given.methods), given.worlds, given.store, given.jobs)
    print(json.dumps(found, indent=1, default=float))


if __name__ == "__main__":
    main()
