"""The price of safety, and of many runs: every ratio with its spread, from runs that take turns step by step.

Claims:
- over a run of 60 steps on ResNet-18 with batches of 64+64, a CUP step by degree (γ as a degree: the trust region
  looks at both losses again where needed) takes at most 1.08 of a WS step, by angle at most 1.03;
- on the digits CNN with batches of 8+8 a CUP step by degree takes at most 1.3 of a bare PyTorch WS step;
- worlds trained together (an MLP on digits, 32 at once) are trained at least 4 times as fast as one by one, on one core
  and by a process on each core (wall-clock time); the digits CNN is for comparison and is not trained together;
- a CUP step's peak memory is at most a WS step's and the weights and one gradient more.

WS is the plain way: one backward pass of the weighted sum, without any of the Loop. Times are CPU times of this process
with one thread, which other work on the machine lengthens least. The spread is that of sixths of a run, or of repeats.
How a cost grows is the slope of log time between the smallest and the largest of three sizes.

Run with: python benchmarks/ratios.py [--json] [--steps 60] [--batch 64] [--repeats 3] [--only digits]
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from gradpivot import CUP, WS, Classification, ForgetSplit
from gradpivot.auditing.worlds import world_cells
from gradpivot.data import load_digits
from gradpivot.experiments import Problem, find_problem
from gradpivot.loop import Loop, Progress
from gradpivot.models.mlp import MLP
from gradpivot.models.resnet import resnet18
from gradpivot.runs import Lesson, train_original, train_together
from gradpivot.sweep import Cell, Job, Store, setting_of, train_ahead
from gradpivot.sweep.engines.local import LocalEngine

Run = Callable[[Progress], object]
"""A run that reports before its first step and after each."""

PARTS = 6


def in_turns(runs: Mapping[str, Run]) -> dict[str, list[float]]:
    """Seconds of every step of several runs, which take turns: a noisy moment falls on all of them alike."""
    waiting = {name: threading.Semaphore(0) for name in runs}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    left = list(runs)
    finished = threading.Event()

    def hand_over(name: str, ends: bool) -> None:
        following = left[(left.index(name) + 1) % len(left)]
        if ends:
            left.remove(name)
        if left:
            waiting[following].release()
        else:
            finished.set()

    def take_part(name: str) -> None:
        torch.set_num_threads(1)
        waiting[name].acquire()
        since: list[float] = []

        def progress(done: int, total: int) -> None:
            now = time.process_time()
            if since:
                seconds[name].append(now - since.pop())
            hand_over(name, ends=False)
            waiting[name].acquire()
            since.append(time.process_time())

        try:
            runs[name](progress)
        finally:
            hand_over(name, ends=True)

    for name in runs:
        threading.Thread(target=take_part, args=(name,), daemon=True).start()
    waiting[left[0]].release()
    finished.wait()
    return seconds


def ratio_of(ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """Ratio of the mean steps, without the first two, and its range over parts of the run."""
    count = min(len(ours), len(theirs))
    ours, theirs = ours[2:count], theirs[2:count]
    cuts = [len(ours) * part // PARTS for part in range(PARTS + 1)]
    parts = [sum(ours[a:b]) / sum(theirs[a:b]) for a, b in itertools.pairwise(cuts) if b > a]
    return {
        "ratio": sum(ours) / sum(theirs), "spread": [min(parts), max(parts)], "steps": count,
        "ms": [1e3 * statistics.fmean(times) for times in (ours, theirs)],
    }  # fmt: skip


def bare(model: nn.Module, split: ForgetSplit, batch: int, steps: int) -> Run:
    """WS written out in PyTorch."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=5e-4, fused=True)
    inputs, labels = split.train.tensors
    sides = [torch.from_numpy(indices.copy()) for indices in (split.forget_indices, split.retain_indices)]

    def run(progress: Progress) -> None:
        progress(0, steps)
        for step in range(steps):
            forget, retain = (side[torch.randperm(len(side))[:batch]] for side in sides)
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs[retain]), labels[retain])
            loss = loss - cross_entropy(model(inputs[forget]), labels[forget])
            loss.backward()
            optimizer.step()
            loss.item()
            progress(step + 1, steps)

    return run


def looped(method: CUP | WS, model: nn.Module, split: ForgetSplit) -> Run:
    return lambda progress: Loop(progress=progress).run(method, model, Classification(), split)


def on_resnet(batch: int, steps: int) -> dict[str, Any]:
    """Steps on ResNet-18, whose own predictions are the labels: there is something to forget."""
    torch.manual_seed(0)
    model = resnet18().eval()
    images = torch.randint(256, (10 * batch, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        logits = torch.cat([model(part) for part in images.split(64)])
        # Centred and sharpened, so that the classes are many and the predictions sure.
        model.linear.bias -= logits.mean(0)
        scale = 5 / (logits - logits.mean(0)).std()
        model.linear.weight *= scale
        model.linear.bias *= scale
        labels = torch.cat([model(part) for part in images.split(64)]).argmax(1)
    data = TensorDataset(images, labels)
    split = ForgetSplit.by_index(data, data, range(5 * batch))
    shared: dict[str, Any] = {"gamma": 0.5, "batch_size": batch, "epochs": steps // 5, "lr": 1e-3}
    seconds = in_turns({
        "WS": bare(resnet18(), split, batch, steps),
        "by degree": looped(CUP(goal="misclassified", **shared), model, split),
        "by angle": looped(CUP(dial="angle", max_norm=1.0, **shared), model, split),
    })  # fmt: skip
    return {
        "ResNet-18: CUP step by degree / WS step": ratio_of(seconds["by degree"], seconds["WS"]),
        "ResNet-18: CUP step by angle / WS step": ratio_of(seconds["by angle"], seconds["WS"]),
    }


def on_digits(epochs: int) -> dict[str, Any]:
    """Steps on the digits CNN, trained."""
    problem = find_problem("digits")
    train, test = load_digits()
    split = ForgetSplit.by_class(train, test, 3)
    model = train_original(problem, split, 0)
    shared: dict[str, Any] = {"batch_size": 8, "epochs": epochs}
    seconds = in_turns({
        "bare": bare(problem.model(), split, 8, 19 * epochs),
        "by degree": looped(CUP(gamma=0.5, **shared), model, split),
        "by angle": looped(CUP(gamma=0.5, dial="angle", **shared), model, split),
        "WS": looped(WS(lr=1e-3, **shared), model, split),
    })  # fmt: skip
    return {
        "digits CNN: CUP step by degree / bare WS step": ratio_of(seconds["by degree"], seconds["bare"]),
        "digits CNN: CUP step by angle / bare WS step": ratio_of(seconds["by angle"], seconds["bare"]),
        "digits CNN: WS step of the loop / bare WS step": ratio_of(seconds["WS"], seconds["bare"]),
    }


def cpu_seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def wall_seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def digits_mlp() -> Problem:
    digits = find_problem("digits")
    return replace(digits, name="digits-mlp", model=lambda: nn.Sequential(nn.Flatten(), MLP((64, 64, 10))))


def on_worlds(repeats: int) -> dict[str, Any]:
    """Models a second of one program against separate trainings, on one core."""
    digits = find_problem("digits")
    few = replace(digits, training=replace(digits.training, epochs=2))
    found = {}
    for name, problem, count in (("MLP 64-64-10", digits_mlp(), 32), ("digits CNN", few, 8)):
        seconds = [separate_and_together(problem, count) for _ in range(repeats + 1)][1:]
        ratios = [alone / together for alone, together in seconds]
        found[f"{name}: {count} models together / one by one, models a second on one core"] = {
            "ratio": statistics.median(ratios), "spread": [min(ratios), max(ratios)], "models": count,
            "ms": [1e3 * statistics.median(times) for times in zip(*seconds, strict=True)], "cores": os.cpu_count(),
        }  # fmt: skip
    return found


def separate_and_together(problem: Problem, count: int, alone: int = 2) -> tuple[float, float]:
    """CPU seconds a model."""
    train, test = problem.load()
    split = ForgetSplit.by_class(train, test, 3)
    lessons = [Lesson(train, np.arange(len(train)), seed) for seed in range(count)]
    together = cpu_seconds(lambda: train_together(problem, lessons)) / count
    return cpu_seconds(lambda: [train_original(problem, split, seed) for seed in range(alone)]) / alone, together


def on_all_cores(repeats: int) -> dict[str, Any]:
    """Shadow models a second of wall-clock time, by as many processes as cores: one program each, or one by one."""
    name, cores, together, alone = "benchmarks.ratios:digits_mlp", os.cpu_count() or 1, 64, 8
    # This process and the workers look for the problem there.
    root = str(Path(__file__).parents[1])
    sys.path.insert(0, root)
    os.environ["PYTHONPATH"] = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    cells = world_cells(setting_of(name, 1, "cpu"), {"kind": "class", "classes": [3]}, together, {})
    shadows = [cell for cell in cells if cell.role == "original"]
    seconds = []
    with TemporaryDirectory() as folder:
        engine = LocalEngine(cores, 1, Path(folder) / "log")
        try:
            for repeat in range(repeats + 1):
                store = Store(Path(folder) / str(repeat), create=True)
                one_by_one = wall_seconds(lambda to=store: train_each(shadows[:alone], to, engine)) / alone
                seconds.append((one_by_one, wall_seconds(lambda to=store: train_ahead(shadows, to, engine)) / together))
                assert all(store.has_original(cell.original_key) for cell in shadows)
                store.close()
        finally:
            engine.close()
    # The first round starts the workers.
    ratios = [each / one for each, one in seconds[1:]]
    label = f"MLP 64-64-10: {together} models together / one by one, models a second on {cores} cores"
    return {label: {
        "ratio": statistics.median(ratios), "spread": [min(ratios), max(ratios)], "models": together, "cores": cores,
        "ms": [1e3 * statistics.median(times) for times in zip(*seconds[1:], strict=True)],
    }}  # fmt: skip


def train_each(cells: Sequence[Cell], store: Store, engine: LocalEngine) -> None:
    """Train shadow models one by one in the engine's workers, as a sweep does; the store does not get them."""
    for cell in cells:
        files = {"original": store.original_path(cell.original_key), "checkpoint": store.checkpoint_path(cell.key)}
        engine.submit(
            Job(
                key=cell.original_key, setting=cell.setting, seed=cell.seed, cell=None, target=cell.target,
                store=(store.folder, store.id), **files,
            )
        )  # fmt: skip
    left = len(cells)
    while left:
        outcomes = engine.wait(1.0)
        assert all(isinstance(outcome.value, bytes) for outcome in outcomes), outcomes
        left -= len(outcomes)


def growth(repeats: int) -> dict[str, Any]:
    """How costs grow with weights, the forget set and the number of runs: sizes, CPU seconds, log-log slopes."""
    digits = find_problem("digits")
    train, test = digits.load()
    short = replace(digits_mlp(), training=replace(digits.training, epochs=5))

    def wide(width: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), MLP((64, width, width, 10)))

    def step(width: int) -> float:
        model = wide(width)
        split = ForgetSplit.by_class(train, test, 3)
        method = CUP(gamma=0.5, dial="angle", batch_size=8, epochs=1)
        return statistics.median(in_turns({"run": looped(method, model, split)})["run"])

    def run(samples: int) -> float:
        split = ForgetSplit.by_index(train, test, range(samples))
        method = CUP(gamma=0.5, goal="misclassified", batch_size=8, epochs=1)
        model = train_original(short, split, 0)
        return cpu_seconds(lambda: Loop().run(method, model, Classification(), split))

    def together(count: int) -> float:
        return separate_and_together(short, count, alone=1)[1] * count

    def alone(count: int) -> float:
        return separate_and_together(short, 1, alone=count)[0] * count

    costs: dict[str, tuple[Callable[[int], float], tuple[int, int, int]]] = {
        "step, by the weights of an MLP": (step, (256, 1024, 4096)),
        "run, by forget samples": (run, (75, 300, 1200)),
        "models one by one, by their number": (alone, (2, 4, 8)),
        "models together, by their number": (together, (8, 16, 32)),
    }
    found = {}
    for name, (cost, sizes) in costs.items():
        cost(sizes[0])
        axis = [sum(p.numel() for p in wide(size).parameters()) for size in sizes] if cost is step else list(sizes)
        rounds = [[cost(size) for size in sizes] for _ in range(repeats)]
        seconds = [statistics.median(times) for times in zip(*rounds, strict=True)]
        slope = math.log(seconds[-1] / seconds[0]) / math.log(axis[-1] / axis[0])
        found[name] = {"sizes": axis, "seconds": seconds, "slope": slope}
    return found


def peaks(batch: int) -> dict[str, float]:
    """Peak memory of a process that makes a few steps, in MB."""
    script = Path(__file__).with_name("step.py")

    def peak(name: str) -> float:
        words = [sys.executable, str(script), "--peak", name, "--batch", str(batch), "--threads", "1"]
        return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    return {name: peak(name) for name in ("WS", "WS by the Loop", "CUP by the Loop", "safe CUP by the Loop")}


CLAIMS = {
    "ResNet-18: CUP step by degree / WS step": 1.08,
    "ResNet-18: CUP step by angle / WS step": 1.03,
    "digits CNN: CUP step by degree / bare WS step": 1.3,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--only", choices=("resnet", "digits", "worlds", "growth", "memory"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    told: dict[str, Any] = {"ratios": {}, "batch": chosen.batch, "torch": torch.__version__}
    if chosen.only in (None, "digits"):
        told["ratios"] |= on_digits(max(1, chosen.steps // 6))
    if chosen.only in (None, "resnet"):
        told["ratios"] |= on_resnet(chosen.batch, chosen.steps)
    if chosen.only in (None, "worlds"):
        told["ratios"] |= on_worlds(chosen.repeats) | on_all_cores(chosen.repeats)
    if chosen.only in (None, "growth"):
        told["growth"] = growth(chosen.repeats)
    if chosen.only in (None, "memory") and sys.platform == "linux":
        told["peak_mb"] = peaks(chosen.batch)
    if chosen.json:
        print(json.dumps(told, indent=2))
        return
    for name, found in told["ratios"].items():
        claim = f", claim ≤ {CLAIMS[name]}" if name in CLAIMS else ""
        low, high = found["spread"]
        print(f"{name}: {found['ratio']:.3f} ({low:.3f} to {high:.3f}; {found['ms'][0]:.1f} ms{claim})")
    for name, found in told.get("growth", {}).items():
        seconds = ", ".join(
            f"{size}: {cost:.3g} s" for size, cost in zip(found["sizes"], found["seconds"], strict=True)
        )
        print(f"{name}: slope {found['slope']:.2f} ({seconds})")
    for name, peak in told.get("peak_mb", {}).items():
        print(f"{name}: at most {peak:.0f} MB, {peak - told['peak_mb']['WS by the Loop']:+.0f} of WS by the Loop")


if __name__ == "__main__":
    main()
