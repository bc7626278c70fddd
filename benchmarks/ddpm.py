"""What diffusion costs, as ratios measured in one run, interleaved.

Claims:
- a CUP step takes at most 1.05 of a WS step on the U-Net, both as the Loop makes them with the same losses;
- a denoising step with batched guidance (one forward pass for both branches) takes at most 0.7 of one with two.

The small U-Net at 16×16 by default; --paper for the 35.8 M weights at 32×32.

Run with: python benchmarks/ddpm.py [--json] [--repeats 7] [--batch 128] [--threads 2] [--paper] [--cpu]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from gradpivot import CUP, WS, ForgetSplit
from gradpivot.loop.loop import Loop
from gradpivot.methods.method import Method
from gradpivot.models.ddpm import paper_unet, small_unet
from gradpivot.tasks.diffusion.denoising import Diffusion
from gradpivot.tasks.diffusion.sampling import guided_noise

TASK = Diffusion(classes=10)
GUIDANCE = 2.0

# With --cpu the process's own time, which other people's jobs lengthen less; only meant for one thread.
clock = time.perf_counter


def looped(method: Method, model: nn.Module, batch: int) -> Callable[[], float]:
    """Seconds of the second of two steps as a run makes them."""
    channels, size = model.config.in_channels, model.config.sample_size
    images = torch.randint(256, (4 * batch, channels, size, size), dtype=torch.uint8)
    data = TensorDataset(images, torch.arange(4 * batch) % 10)
    split = ForgetSplit.by_index(data, data, range(2 * batch))

    def step() -> float:
        at: list[float] = []
        loop = Loop(progress=lambda done, total: at.append(clock()))
        loop.run(method, model, TASK, split)
        return at[2] - at[1]

    return step


def two_forwards(model: nn.Module, images: Tensor, timestep: Tensor, labels: Tensor) -> Tensor:
    """Guidance the plain way: the same numbers from a pass for each branch."""
    conditional = model(images, timestep, class_labels=labels).sample
    free = model(images, timestep, class_labels=torch.full_like(labels, TASK.no_class)).sample
    return (1 + GUIDANCE) * conditional - GUIDANCE * free


def denoising(model: nn.Module, batch: int, *, together: bool) -> Callable[[], float]:
    """Seconds of one guided prediction for ``batch`` pictures."""
    images = torch.randn(batch, model.config.in_channels, model.config.sample_size, model.config.sample_size)
    labels, timestep = torch.arange(batch) % 10, torch.tensor(500)

    @torch.no_grad()
    def step() -> float:
        start = clock()
        if together:
            guided_noise(model, images, timestep, labels, TASK.no_class, GUIDANCE)
        else:
            two_forwards(model, images, timestep, labels)
        return clock() - start

    return step


def measured(arms: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Each arm's seconds, one after the other in every round; the first round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(repeats + 1):
        for name, arm in arms.items():
            taken = arm()
            if number:
                seconds[name].append(taken)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="CPU seconds, for a busy machine and one thread")
    chosen = parser.parse_args()
    if chosen.cpu:
        global clock
        clock = time.process_time
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    model = paper_unet() if chosen.paper else small_unet()
    shared = {"batch_size": chosen.batch, "lr": 1e-4, "iterations": 2}
    arms = {
        "WS step": looped(WS(**shared), model, chosen.batch),
        "CUP step": looped(CUP(gamma=0.5, dial="angle", **shared), model, chosen.batch),
        "guidance, two forwards": denoising(model, chosen.batch, together=False),
        "guidance, batched": denoising(model, chosen.batch, together=True),
    }
    seconds = measured(arms, chosen.repeats)
    of = {name: statistics.median(values) for name, values in seconds.items()}
    ratios = {
        name: statistics.median(a / b for a, b in zip(seconds[one], seconds[other], strict=True))
        for name, one, other in (
            ("CUP step / WS step", "CUP step", "WS step"),
            ("batched guidance / two forwards", "guidance, batched", "guidance, two forwards"),
        )
    }
    told = {
        "model": "paper" if chosen.paper else "small", "batch": chosen.batch, "threads": chosen.threads,
        "repeats": chosen.repeats, "seconds": of, "ratios": ratios,
        "images_per_second": {name: chosen.batch / value for name, value in of.items()},
    }  # fmt: skip
    if chosen.json:
        print(json.dumps(told))
        return
    for name, value in of.items():
        print(f"{name:28} {1000 * value:9.1f} ms  {chosen.batch / value:8.0f} images/s")
    for name, limit in zip(ratios, (1.05, 0.7), strict=True):
        print(f"{name:34} {ratios[name]:.3f}  (claimed: at most {limit})")


if __name__ == "__main__":
    main()
