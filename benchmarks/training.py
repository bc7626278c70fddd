"""What the Loop costs in ordinary training: its step against a bare PyTorch loop's, in turns, in one process.

The Loop adds what makes runs comparable and safe: seeds for every step, the loss and the gradient's length for the
history, the guard with the last good weights. CPU time of this process is counted, and of each kind of step the
shortest is taken: other work on the machine can only make a step longer. Claim: at most 5 % for the small ResNet,
ResNet-20 and ResNet-18.

Run with: python benchmarks/training.py [--json] [--steps 20] [--only ResNet-20]
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from gradpivot import Classification, ForgetSplit, Retrain
from gradpivot.loop.loop import Loop
from gradpivot.models.cnn import SmallCNN
from gradpivot.models.resnet import resnet18, resnet20
from gradpivot.models.small import small_resnet
from gradpivot.runs.training import FitToAll

WARM_UP = 3
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "small CNN on 8×8, batch 64": (SmallCNN, (1, 8, 8), 64),
    "small ResNet, batch 128": (small_resnet, (3, 32, 32), 128),
    "ResNet-20, batch 128": (resnet20, (3, 32, 32), 128),
    "ResNet-18, batch 64": (resnet18, (3, 32, 32), 64),
}


@dataclass
class InTurns:
    """Called by the Loop after each of its steps; makes a bare step then, and times both."""

    bare_step: Callable[[], None]
    loop: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    since: float | None = None

    def __call__(self, done: int, total: int) -> None:
        now = time.process_time()
        if self.since is not None:
            self.loop.append(now - self.since)
        self.bare_step()
        self.since = time.process_time()
        self.bare.append(self.since - now)


def bare_step(model: nn.Module, optimizer: torch.optim.Optimizer, data: TensorDataset, batch: int) -> None:
    at = torch.randperm(len(data))[:batch]
    inputs, labels = (tensor[at] for tensor in data.tensors)
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    loss.item()


def measure(make: Callable[[], nn.Module], shape: tuple[int, ...], batch: int, steps: int) -> dict[str, float]:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(2 * batch, *shape), torch.randint(10, (2 * batch,)))
    model = make()
    bare = copy.deepcopy(model).train()
    optimizer = torch.optim.SGD(bare.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, foreach=True)
    turns = InTurns(partial(bare_step, bare, optimizer, data, batch))
    recipe = Retrain(lr=1e-3, batch_size=batch, epochs=(steps + WARM_UP + 1) // 2, schedule="constant")
    split = ForgetSplit.by_index(data, data, [0])
    Loop(progress=turns, factory=make).run(FitToAll(recipe), model, Classification(), split)
    # The Loop reports once before its first step, so bare[i] follows loop[i - 1].
    ours, theirs = turns.loop[WARM_UP:], turns.bare[WARM_UP + 1 :]
    return {
        "loop_ms": 1e3 * min(ours),
        "bare_ms": 1e3 * min(theirs),
        "ratio": min(ours) / min(theirs),
        "median_ratio": statistics.median(a / b for a, b in zip(ours, theirs, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    told = {
        # A step of the smallest takes milliseconds.
        name: measure(*case, chosen.steps * (10 if "8×8" in name else 1))
        for name, case in CASES.items()
        if chosen.only in name
    }
    if chosen.json:
        print(json.dumps(told, indent=2))
        return
    for name, found in told.items():
        print(
            f"{name}: {found['loop_ms']:.1f} ms a step, {found['bare_ms']:.1f} bare, ratio {found['ratio']:.3f} "
            f"(median of pairs {found['median_ratio']:.3f})"
        )


if __name__ == "__main__":
    main()
