"""What the pivot costs: ratios measured in one run, interleaved, on an 11 M-weight ResNet-18 with batches of 64+64.

Claims (issue "The pivot end to end"):
- the pivot's own work (Gram matrix + combination) costs at most 5 % of a WS step;
- the whole CUP step is faster than the same step through TorchJD's PCGrad.

Run with: python benchmarks/step.py [--json] [--repeats 5] [--batch 64] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from gradpivot import Pivot
from gradpivot.geometry import gram_of, pivot_weights
from gradpivot.geometry.combination import combine
from gradpivot.models.resnet import resnet18

Step = Callable[[], None]


def make_steps(batch: int) -> dict[str, Step]:
    torch.manual_seed(0)
    model = resnet18().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    x, z = (torch.rand(batch, 3, 32, 32).to(memory_format=torch.channels_last) for _ in range(2))
    y, w = torch.randint(10, (batch,)), torch.randint(10, (batch,))

    def losses() -> tuple[torch.Tensor, torch.Tensor]:
        return -cross_entropy(model(x), y), cross_entropy(model(z), w)

    def ws() -> None:
        optimizer.zero_grad()
        forget, retain = losses()
        (forget + retain).backward()
        optimizer.step()

    pivot = Pivot(0.5, max_norm=1.0)

    def cup() -> None:
        optimizer.zero_grad()
        pivot.backward(*losses(), model.parameters())
        optimizer.step()

    return {
        "WS": ws,
        "CUP": cup,
        "TorchJD PCGrad": torchjd_step(model, optimizer, losses, None),
        "TorchJD PCGrad, one row at a time": torchjd_step(model, optimizer, losses, 1),
    }


def torchjd_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    losses: Callable[[], tuple[torch.Tensor, ...]],
    chunk: int | None,
) -> Step:
    from torchjd.aggregation import PCGrad
    from torchjd.autojac import backward, jac_to_grad

    aggregator = PCGrad()

    def step() -> None:
        optimizer.zero_grad()
        backward(list(losses()), inputs=list(model.parameters()), parallel_chunk_size=chunk)
        jac_to_grad(list(model.parameters()), aggregator)
        optimizer.step()

    return step


def own_work(repeats: int) -> float:
    """Seconds of Gram matrix and combination alone, on gradients of that network."""
    model = resnet18().to(memory_format=torch.channels_last)
    f, r = ([torch.randn_like(p) for p in model.parameters()] for _ in range(2))

    def once() -> None:
        gram = gram_of(f, r)
        combine(f, r, pivot_weights(*gram, 0.5), gram)

    once()
    return statistics.median(timed(once) for _ in range(4 * repeats))


def timed(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    steps = make_steps(chosen.batch)
    for step in steps.values():
        step()
    # Interleaved, so that a noisy moment of the machine falls on all of them alike.
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(chosen.repeats):
        for name, step in steps.items():
            seconds[name].append(timed(step))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    own = own_work(chosen.repeats)
    told = {
        "seconds": medians,
        "own_work_seconds": own,
        "own_work_to_ws": own / medians["WS"],
        "cup_to_ws": medians["CUP"] / medians["WS"],
        # Against the faster of its two ways.
        "cup_to_torchjd_pcgrad": medians["CUP"] / min(v for k, v in medians.items() if "TorchJD" in k),
        "threads": chosen.threads,
        "batch": chosen.batch,
        "torch": torch.__version__,
    }
    if chosen.json:
        print(json.dumps(told, indent=2))
        return
    for name, value in medians.items():
        print(f"{name:34} {value:7.3f} s a step")
    share = f"{100 * told['own_work_to_ws']:.2f} % of a WS step (claim: ≤ 5 %)"
    print(f"{'own work of the pivot':34} {own:7.4f} s = {share}")
    print(f"CUP / WS {told['cup_to_ws']:.3f}")
    print(f"CUP / TorchJD PCGrad, the faster way, {told['cup_to_torchjd_pcgrad']:.3f} (claim: < 1)")


if __name__ == "__main__":
    main()
