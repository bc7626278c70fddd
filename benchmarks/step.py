"""What the pivot costs: ratios measured in one run, interleaved, on an 11 M-weight ResNet-18 with batches of 64+64.

Claims:
- a CUP step takes at most 1.05 of a WS step, by Pivot.backward and as the Loop makes it (bytes on the device,
  channels last, telemetry, the weights before the step kept);
- a safe step (γ as a degree: both losses looked at again, and the step taken back if they hurt) takes at most 1.35 of
  a plain one;
- the pivot's own work (Gram matrix + combination) costs at most 5 % of a WS step;
- the whole CUP step is faster than the same step through TorchJD's PCGrad;
- a CUP step's peak memory is at most a WS step's and the weights and one gradient more.

WS is the plain way: one backward pass of the weighted sum. Peaks are the largest resident memory (VmHWM) of a child
process each that makes three steps.

Run with: python benchmarks/step.py [--json] [--repeats 5] [--batch 64] [--threads 2] [--without-torchjd] [--cpu]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from gradpivot import CUP, WS, Classification, ForgetSplit, Pivot
from gradpivot.geometry.combination import combine
from gradpivot.geometry.gramian import change_along, gram_of
from gradpivot.geometry.pivot import pivot_weights
from gradpivot.loop.loop import Loop
from gradpivot.methods.method import Method
from gradpivot.models.resnet import resnet18

Step = Callable[[], float]
"""Makes one step, and tells its seconds."""


def by_hand(kind: str, batch: int) -> Step:
    """A step written out: its own network, two batches, SGD with momentum."""
    torch.manual_seed(0)
    model = resnet18()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=True)
    (x, y), (z, w) = some_images(batch), some_images(batch)
    pivot = Pivot(0.5, max_norm=1.0)

    def forget() -> torch.Tensor:
        return -cross_entropy(model(x), y)

    def retain() -> torch.Tensor:
        return cross_entropy(model(z), w)

    def ws() -> None:
        (forget() + retain()).backward()

    def cup() -> None:
        pivot.backward(forget(), retain(), model.parameters())

    def cup_in_turn() -> None:
        pivot.backward(forget, retain, model.parameters())

    def torchjd(chunk: int | None) -> None:
        from torchjd.aggregation import PCGrad
        from torchjd.autojac import backward, jac_to_grad

        backward([forget(), retain()], inputs=list(model.parameters()), parallel_chunk_size=chunk)
        jac_to_grad(list(model.parameters()), PCGrad())

    gradients = {
        "ws": ws, "cup": cup, "in turn": cup_in_turn,
        "torchjd": lambda: torchjd(None), "torchjd rows": lambda: torchjd(1),
    }[kind]  # fmt: skip

    def step() -> None:
        optimizer.zero_grad()
        gradients()
        optimizer.step()

    return timing(step)


ARMS: dict[str, Callable[[int], Step]] = {
    "WS": partial(by_hand, "ws"),
    "CUP": partial(by_hand, "cup"),
    "CUP, a loss at a time": partial(by_hand, "in turn"),
    "WS by the Loop": lambda batch: looped(WS(batch_size=batch, lr=1e-4, epochs=2), batch),
    "CUP by the Loop": lambda batch: looped(
        CUP(gamma=0.5, dial="angle", momentum=0.9, max_norm=1.0, batch_size=batch, lr=1e-4, epochs=2), batch
    ),
    "safe CUP by the Loop": lambda batch: looped(
        CUP(gamma=0.5, goal="misclassified", batch_size=batch, lr=1e-4, epochs=2), batch
    ),
    "TorchJD PCGrad": partial(by_hand, "torchjd"),
    "TorchJD PCGrad, one row at a time": partial(by_hand, "torchjd rows"),
}
PEAKS = [name for name in ARMS if "TorchJD" not in name]


def some_images(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8), torch.randint(10, (count,))


# With --cpu the process's own time, which other people's jobs lengthen less; only meant for one thread.
clock = time.perf_counter


def timing(call: Callable[[], None]) -> Step:
    def step() -> float:
        start = clock()
        call()
        return clock() - start

    return step


def looped(method: Method, batch: int) -> Step:
    """The second of two steps as a run makes them."""
    model = resnet18()
    data = TensorDataset(*some_images(2 * batch))
    split = ForgetSplit.by_index(data, data, range(batch))

    def step() -> float:
        at: list[float] = []
        loop = Loop(progress=lambda done, total: at.append(clock()))
        loop.run(method, model, Classification(), split)
        return at[2] - at[1]

    return step


def own_work(repeats: int) -> dict[str, float]:
    """Seconds of what a step does besides the passes, on gradients of that network."""
    model = resnet18()
    weights = [p.detach() for p in model.parameters()]
    before = [p.clone() for p in weights]
    f, r = ([torch.randn_like(p) for p in weights] for _ in range(2))

    def pivot() -> None:
        gram = gram_of(f, r)
        combine(f, r, pivot_weights(*gram, 0.5), gram)

    parts = {
        "Gram matrix and combination": pivot,
        "copy of the weights": lambda: torch._foreach_copy_(before, weights),
        "what the step did (telemetry)": lambda: change_along(before, weights, f, r),
    }
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(4 * repeats):
        for name, part in parts.items():
            seconds[name].append(timing(part)())
    return {name: statistics.median(times) for name, times in seconds.items()}


def peak_of(name: str, batch: int, threads: int) -> float:
    """Largest resident memory of a process of its own that makes three such steps, in MB."""
    call = [sys.executable, __file__, "--peak", name, "--batch", str(batch), "--threads", str(threads)]
    return float(subprocess.run(call, check=True, capture_output=True, text=True).stdout)


def print_peak(name: str, batch: int) -> None:
    step = ARMS[name](batch)
    for _ in range(3):
        step()
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    print(int(status.split("VmHWM:")[1].split()[0]) / 1024)


def measured(batch: int, repeats: int, threads: int, torchjd: bool) -> dict[str, object]:
    steps = {name: make(batch) for name, make in ARMS.items() if torchjd or name in PEAKS}
    for step in steps.values():
        step()
    # Interleaved, so that a noisy moment of the machine falls on all of them alike.
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            seconds[name].append(step())
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    own = own_work(repeats)
    peaks = {name: peak_of(name, batch, threads) for name in PEAKS} if sys.platform == "linux" else {}
    theirs = [value for name, value in medians.items() if "TorchJD" in name]
    return {
        "seconds": medians,
        "own_work_seconds": own,
        "own_work_to_ws": own["Gram matrix and combination"] / medians["WS"],
        "cup_to_ws": medians["CUP"] / medians["WS"],
        "loop_cup_to_ws": medians["CUP by the Loop"] / medians["WS"],
        "safe_to_plain": medians["safe CUP by the Loop"] / medians["CUP by the Loop"],
        # Against the faster of its two ways.
        "cup_to_torchjd_pcgrad": medians["CUP"] / min(theirs) if theirs else None,
        "peak_mb": peaks,
        "weights_mb": sum(p.numel() * p.element_size() for p in resnet18().parameters()) / 2**20,
        "threads": threads,
        "batch": batch,
        "torch": torch.__version__,
    }


def show(told: dict) -> None:
    ws = told["seconds"]["WS"]
    for name, value in told["seconds"].items():
        print(f"{name:34} {value:7.3f} s a step, {value / ws:6.3f} of WS")
    for name, value in told["own_work_seconds"].items():
        print(f"{name:34} {value:7.4f} s, {100 * value / ws:5.2f} % of a WS step")
    print(f"CUP / WS {told['cup_to_ws']:.3f}, by the Loop {told['loop_cup_to_ws']:.3f} (claim: both at most 1.05)")
    print(f"safe CUP / CUP, by the Loop {told['safe_to_plain']:.3f} (claim: at most 1.35)")
    print(f"own work of the pivot {100 * told['own_work_to_ws']:.2f} % of a WS step (claim: at most 5 %)")
    if told["cup_to_torchjd_pcgrad"]:
        print(f"CUP / TorchJD PCGrad, the faster way, {told['cup_to_torchjd_pcgrad']:.3f} (claim: below 1)")
    peaks, room = told["peak_mb"], 2 * told["weights_mb"]
    for name, peak in peaks.items():
        # Like with like: the Loop leaves the caller's model alone and keeps the weights before the step, for WS too.
        other = "WS by the Loop" if "Loop" in name else "WS"
        print(f"{name:34} {peak:7.0f} MB at most, {peak - peaks[other]:+4.0f} of {other} (claim: +{room:.0f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--without-torchjd", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="CPU seconds, for a busy machine and one thread")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peak", choices=PEAKS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.cpu:
        global clock
        clock = time.process_time
    if chosen.peak:
        print_peak(chosen.peak, chosen.batch)
        return
    told = measured(chosen.batch, chosen.repeats, chosen.threads, not chosen.without_torchjd)
    if chosen.json:
        print(json.dumps(told, indent=2))
    else:
        show(told)


if __name__ == "__main__":
    main()
