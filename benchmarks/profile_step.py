"""Where the time goes: a CUP step and an evaluation pass on ResNet-18, by torch.profiler, as shares of CPU time.

    python benchmarks/profile_step.py [--batch 64] [--steps 2] [--threads 1] [--json]

Shares are of the operators' own (self) CPU time; Python's own work is listed separately as the
difference to the wall clock. With more than one thread only the calling thread is seen.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import TensorDataset

from gradpivot import CUP, Classification, ForgetSplit, loop as looping
from gradpivot.data.loader import Loader
from gradpivot.evaluate.classifiers.evaluation import predictions
from gradpivot.loop import combined, motion, stepping
from gradpivot.models.resnet import resnet18

# Regions by name, then operators by what their name holds; the first that fits.
REGIONS = {
    "gram_of": "pivot: Gram matrix",
    "combine": "pivot: combination",
    "change_along": "telemetry of the step",
    "RevertibleOptimizer.step": "optimiser and copy of the weights",
    "batches": "data: indexing, augmentation",
}
OPERATORS = (
    ("convolution_backward", "convolutions, backward"),
    ("conv", "convolutions, forward"),
    ("native_batch_norm_backward", "BatchNorm, backward"),
    ("batch_norm", "BatchNorm, forward"),
    ("threshold_backward", "ReLU, backward"),
    ("relu", "ReLU, forward"),
    ("clamp_min", "ReLU, forward"),
    ("add", "sums (residuals, accumulated gradients)"),
    ("mm", "linear layer"),
)
OTHER = "other operators"


@contextmanager
def regions() -> Iterator[None]:
    """Mark what is ours, so that its operators are not counted with the network's."""

    def marked(owner: Any, name: str, label: str) -> Any:
        plain = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            with record_function(label):
                return plain(*given, **named)

        return mock.patch.object(owner, name, call)

    with (
        marked(stepping, "gram_of", "gram_of"),
        marked(combined, "combine", "combine"),
        marked(motion, "change_along", "change_along"),
        marked(motion.RevertibleOptimizer, "step", "RevertibleOptimizer.step"),
        batches_marked(),
    ):
        yield


@contextmanager
def batches_marked() -> Iterator[None]:
    plain = Loader.batches

    def batches(self: Loader, *given: Any, **named: Any) -> Iterator[Any]:
        source = plain(self, *given, **named)
        while True:
            with record_function("batches"):
                try:
                    batch = next(source)
                except StopIteration:
                    return
            yield batch

    with mock.patch.object(Loader, "batches", batches):
        yield


def shares(call: Callable[[], Any]) -> dict[str, Any]:
    """Seconds by kind of work."""
    call()
    start = time.perf_counter()
    with regions(), profile(activities=[ProfilerActivity.CPU]) as seen:
        call()
    wall = time.perf_counter() - start
    seconds: dict[str, float] = {}
    for event in seen.events():
        kind = kind_of(event)
        seconds[kind] = seconds.get(kind, 0.0) + event.self_cpu_time_total / 1e6
    return {"seconds": dict(sorted(seconds.items(), key=lambda item: -item[1])), "wall": wall}


def kind_of(event: Any) -> str:
    inside = event
    while inside is not None:
        if inside.name in REGIONS:
            return REGIONS[inside.name]
        inside = inside.cpu_parent
    return next((kind for part, kind in OPERATORS if part in event.name), OTHER)


def steps(batch: int, count: int) -> Callable[[], Any]:
    torch.manual_seed(0)
    images = torch.randint(256, (2 * batch, 3, 32, 32), dtype=torch.uint8)
    data = TensorDataset(images, torch.randint(10, (2 * batch,)))
    split = ForgetSplit.by_index(data, data, range(batch))
    method = CUP(goal="misclassified", batch_size=batch, lr=1e-4, epochs=count, augment="crop_flip")
    model = resnet18()
    return lambda: looping.Loop().run(method, model, Classification(), split)


def scoring(batch: int) -> Callable[[], Any]:
    torch.manual_seed(0)
    images = torch.randint(256, (4 * batch, 3, 32, 32), dtype=torch.uint8)
    data = TensorDataset(images, torch.randint(10, (4 * batch,)))
    model = resnet18().eval()
    return lambda: predictions(model, data, np.arange(len(data)), Classification())


def show(title: str, told: dict[str, Any]) -> None:
    total = sum(told["seconds"].values())
    print(f"\n{title}\n| work | share of CPU time |\n|---|---|")
    for kind, seconds in told["seconds"].items():
        print(f"| {kind} | {100 * seconds / total:.1f} % |")
    print(f"(all operators {total:.2f} s, wall clock {told['wall']:.2f} s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    told = {
        f"CUP step, {chosen.batch}+{chosen.batch}": shares(steps(chosen.batch, chosen.steps)),
        "evaluation pass": shares(scoring(chosen.batch)),
    }
    if chosen.json:
        print(json.dumps(told, indent=2))
        return
    for title, part in told.items():
        show(title, part)


if __name__ == "__main__":
    main()
