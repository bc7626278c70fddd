"""Where the time goes: a CUP step and an evaluation pass on ResNet-18, by torch.profiler, as shares of CPU time.

    python benchmarks/profile_step.py [--batch 64] [--steps 2] [--threads 1] [--json]
    python benchmarks/profile_step.py --parts       # of a step by degree, by the clock: ResNet-18 and digits CNN

Shares are of the operators' own (self) CPU time; Python's own work is listed separately as the
difference to the wall clock. With more than one thread only the calling thread is seen.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import TensorDataset

from gradpivot import CUP, Classification, ForgetSplit, loop as looping
from gradpivot.data import load_digits
from gradpivot.data.loader import Loader
from gradpivot.dial.goal import Misclassified
from gradpivot.evaluate.classifiers.evaluation import predictions
from gradpivot.experiments import find_problem
from gradpivot.geometry import gradient
from gradpivot.loop import combined, motion, stepping
from gradpivot.models.resnet import resnet18
from gradpivot.runs import train_original

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


PARTS = {
    "forward and backward passes, checks": [(Classification, "outputs"), (gradient, "_run_backward")],
    "losses on the logits, degree": [(Misclassified, "forgetting"), (Classification, "retain_loss")],
    "Gram matrix and combination": [(stepping, "gram_of"), (combined, "combine")],
    "optimiser, copy of the weights, telemetry": [
        (motion.RevertibleOptimizer, "plain_step"), (stepping, "make_row"), (looping.Loop, "record"),
    ],
}  # fmt: skip
REST = "batches, seeds, Python and the rest"


def parts_of(model: nn.Module, split: ForgetSplit, method: CUP) -> dict[str, float]:
    """Shares of CPU time of the steps of a run; a part does not count the parts inside it."""
    nanoseconds = dict.fromkeys((*PARTS, REST), 0)
    inside: list[str] = []
    last = 0

    def enter(part: str | None) -> None:
        """The time until now is of the part that is left or suspended."""
        nonlocal last
        now = time.process_time_ns()
        if inside:
            nanoseconds[inside[-1]] += now - last
        if part is None:
            inside.pop()
        else:
            inside.append(part)
        last = now

    def clocked(owner: Any, name: str, part: str) -> Any:
        plain = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            if not inside:
                return plain(*given, **named)
            enter(part)
            try:
                return plain(*given, **named)
            finally:
                enter(None)

        return mock.patch.object(owner, name, call)

    def progress(done: int, total: int) -> None:
        if done == 2:
            enter(REST)
        elif done == total and inside:
            enter(None)

    with ExitStack() as patches:
        for part, calls in PARTS.items():
            for owner, name in calls:
                patches.enter_context(clocked(owner, name, part))
        looping.Loop(progress=progress).run(method, model, Classification(), split)
    total = sum(nanoseconds.values())
    return {part: spent / total for part, spent in nanoseconds.items()}


def parts() -> dict[str, dict[str, float]]:
    """Shares on both networks."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randint(256, (640, 3, 32, 32), dtype=torch.uint8), torch.randint(10, (640,)))
    on_images = ForgetSplit.by_index(data, data, range(320))
    large = CUP(goal="misclassified", batch_size=32, epochs=2, lr=1e-3)
    on_digits = ForgetSplit.by_class(*load_digits(), 3)
    small = train_original(find_problem("digits"), on_digits, 0)
    return {
        "ResNet-18, 32+32": parts_of(resnet18(), on_images, large),
        "digits CNN, 8+8": parts_of(small, on_digits, CUP(batch_size=8, epochs=30)),
    }


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
    parser.add_argument("--parts", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.parts:
        for title, found in parts().items():
            print(f"\n{title}\n" + "\n".join(f"{100 * share:5.1f} %  {part}" for part, share in found.items()))
        return
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
