"""What the Loop costs in ordinary training: its step against a bare PyTorch loop's, on the same batches, in one run.

The Loop adds what makes runs comparable and safe: per-step seeds, telemetry, the guard with the last good weights.
Steps alternate between the two, and CPU time of this process is counted, so that other work on the machine matters
little. Claim: at most 5 % for ResNet-18 and for a ResNet-20-sized network.

Run with: python benchmarks/training.py [--json] [--steps 20]
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from gradpivot import Classification, Retrain
from gradpivot.loop import Loop
from gradpivot.models.cnn import SmallCNN
from gradpivot.models.resnet import BasicBlock, resnet18


class Narrow(nn.Module):
    """The size of ResNet-20: three stages of three blocks, 16 to 64 channels, 0.27 M weights."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        widths = [(16, 16, 1), (16, 32, 2), (32, 64, 2)]
        blocks = [
            BasicBlock(a if i == 0 else b, b, s if i == 0 else 1) for a, b, s in widths for i in range(3)
        ]
        self.blocks, self.linear = nn.Sequential(*blocks), nn.Linear(64, 10)
        self.to(memory_format=torch.channels_last)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.linear(self.blocks(self.stem(images)).mean((2, 3)))


CASES = {
    "small CNN, 8×8, batch 64": (SmallCNN, (1, 8, 8), 64),
    "ResNet-20 size, batch 128": (Narrow, (3, 32, 32), 128),
    "ResNet-18, batch 64": (resnet18, (3, 32, 32), 64),
}


class InSteps:
    """Training through the Loop, stopped after every step so that the other loop can have its turn."""

    def __init__(self, recipe: Retrain, dataset: TensorDataset) -> None:
        self.recipe, self.dataset = recipe, dataset

    def steps(self, model: nn.Module) -> Iterator[None]:
        loop = Loop(seed=0)
        yield from self.recipe.steps(
            model, Classification(), self.dataset, np.arange(len(self.dataset)), loop
        )


def measure(make: type[nn.Module], shape: tuple[int, ...], batch: int, steps: int) -> dict[str, float]:
    torch.manual_seed(0)
    data = torch.randn(batch * 2, *shape)
    dataset = TensorDataset(data, torch.randint(10, (len(data),)))
    ours = make()
    bare = copy.deepcopy(ours).train()
    recipe = Retrain(lr=1e-3, batch_size=batch, epochs=1 + (steps + 3) // 2)
    optimizer = torch.optim.SGD(bare.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, foreach=True)
    through_loop = InSteps(recipe, dataset).steps(ours)

    def bare_step(number: int) -> None:
        at = torch.randperm(len(dataset))[:batch]
        x, y = (tensor[at] for tensor in dataset.tensors)
        optimizer.zero_grad()
        loss = cross_entropy(bare(x), y)
        loss.backward()
        optimizer.step()
        loss.item()

    spent: dict[str, list[float]] = {"loop": [], "bare": []}
    for number in range(steps + 3):
        for name, step in (("loop", lambda n: next(through_loop)), ("bare", bare_step)):
            started = time.process_time()
            step(number)
            if number >= 3:
                spent[name].append(time.process_time() - started)
    medians = {name: statistics.median(some) for name, some in spent.items()}
    return {
        "loop_ms": 1e3 * medians["loop"],
        "bare_ms": 1e3 * medians["bare"],
        "ratio": statistics.median(a / b for a, b in zip(spent["loop"], spent["bare"], strict=True)),
        "images_per_second": batch / medians["loop"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    told = {
        name: measure(*case, chosen.steps * (10 if "small" in name else 1))
        for name, case in CASES.items()
        if chosen.only in name
    }
    if chosen.json:
        print(json.dumps(told, indent=2))
        return
    for name, found in told.items():
        print(
            f"{name}: {found['loop_ms']:.1f} ms a step, {found['bare_ms']:.1f} bare, ratio {found['ratio']:.3f}"
        )


if __name__ == "__main__":
    main()
