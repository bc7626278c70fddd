"""How much a second process helps: the same CUP steps in one process and in two, a thread each, interleaved.

    python benchmarks/parallel.py [--models cnn resnet18] [--batch 64] [--steps 3] [--repeats 3] [--json]

Efficiency is t₁ / (2·t₂): 1 if two processes take half the time of one. While one process works alone the other waits,
so that both measurements have a core for each process. The exchange is the all-reduce of both gradients by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import CUP, Classification, ForgetSplit
from gradpivot.loop.loop import Loop
from gradpivot.models.cnn import SmallCNN
from gradpivot.models.resnet import resnet18
from gradpivot.runtime.parallel import Replicas

PROCESSES = 2
MODELS = {"cnn": (SmallCNN, (1, 8, 8)), "resnet18": (resnet18, (3, 32, 32))}


def problem(shape: tuple[int, ...], batch: int, steps: int) -> ForgetSplit:
    """As many forget samples as the steps need, and more to retain."""
    torch.manual_seed(0)
    forget = batch * steps
    labels = torch.randint(1, 10, (2 * forget,))
    labels[:forget] = 0
    data = TensorDataset(torch.rand(2 * forget, *shape), labels)
    test = TensorDataset(torch.rand(20, *shape), torch.arange(20) % 10)
    return ForgetSplit.by_class(data, test, 0)


def seconds_a_step(replicas: Replicas, model: nn.Module, split: ForgetSplit, batch: int, steps: int) -> float:
    method = CUP(epochs=1, batch_size=batch, lr=1e-4)
    return Loop(replicas=replicas).run(method, model, Classification(), split).seconds / steps


def exchange_seconds(model: nn.Module) -> float:
    both = torch.zeros(2 * sum(p.numel() for p in model.parameters()))
    dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(both)
    return time.perf_counter() - start


def measured(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """Medians over repeats; all processes go through this, the first one's numbers count."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make()
    split = problem(shape, chosen.batch, chosen.steps)
    together = Replicas.current()
    times: dict[str, list[float]] = {"one": [], "two": [], "exchange": []}
    # The first round warms up.
    for _ in range(1 + chosen.repeats):
        if together.is_first:
            times["one"].append(seconds_a_step(Replicas(), model, split, chosen.batch, chosen.steps))
        dist.barrier()
        times["two"].append(seconds_a_step(together, model, split, chosen.batch, chosen.steps))
        times["exchange"].append(exchange_seconds(model))
    medians = {what: statistics.median(taken[1:] or [0.0]) for what, taken in times.items()}
    return {
        "model": name,
        "weights": sum(p.numel() for p in model.parameters()),
        "batch": f"{chosen.batch}+{chosen.batch}",
        "seconds": medians,
        "speedup": medians["one"] / medians["two"],
        "efficiency": medians["one"] / medians["two"] / PROCESSES,
    }


def work(rank: int, chosen: argparse.Namespace, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=PROCESSES)
    found = [measured(name, chosen) for name in chosen.models]
    if rank == 0:
        tell(found, chosen.json)
    dist.destroy_process_group()


def tell(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"torch": torch.__version__, "cores": os.cpu_count(), "models": found}, indent=2))
        return
    for row in found:
        seconds = row["seconds"]
        print(
            f"{row['model']} ({row['weights']:,} weights, {row['batch']}): one process {seconds['one']:.3f} s a step, "
            f"two {seconds['two']:.3f} s, of which the exchange {seconds['exchange']:.3f} s: {row['speedup']:.2f} "
            f"times as fast, efficiency {100 * row['efficiency']:.0f} %"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (chosen, str(Path(folder) / "store")), nprocs=PROCESSES)


if __name__ == "__main__":
    main()
