"""What two real processes do together, for tests/test_parallel.py and tests/test_sharding.py.

``python tests/replicas.py RANK SIZE FOLDER`` runs every check below on gloo and writes what came out. Starting Python
and torch takes seconds, so that all checks share one start.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from gradpivot import BS, CUP, IU, RL, Classification, ForgetSplit, Pivot, SalUn, score, trace, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.evaluate.classifiers.evaluation import evaluate
from gradpivot.geometry.weighting import Weights
from gradpivot.loop import precision
from gradpivot.loop.loop import Loop
from gradpivot.methods.registry import list_methods, make_method, method_class
from gradpivot.runs.run import Running, run_method
from gradpivot.runtime.parallel import Replicas
from gradpivot.testing.problems import blobs, trained
from memorised import memorised, noisy

PATIENCE = 240
"""Seconds: machines are busy."""

LR = 0.02


def mlp(*, batchnorm: bool = False) -> nn.Module:
    """A float64 network without dropout, the same every time."""
    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    norm = [nn.BatchNorm1d(8)] if batchnorm else []
    model = nn.Sequential(nn.Linear(4, 8), *norm, nn.Tanh(), nn.Linear(8, 3)).double()
    torch.random.set_rng_state(state)
    return model


def split(per_class: int = 15) -> ForgetSplit:
    """Class 0 of the blobs in float64."""
    train, test = (TensorDataset(d.tensors[0].double(), d.tensors[1]) for d in (blobs(per_class), blobs(seed=1)))
    return ForgetSplit.by_class(train, test, 0)


def images() -> ForgetSplit:
    """Three classes of random 6×6 images."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    pixels = torch.rand(60, 1, 6, 6, generator=generator, dtype=torch.float64) + labels[:, None, None, None]
    train, test = (TensorDataset(pixels[part], labels[part]) for part in (slice(0, 30), slice(30, 60)))
    return ForgetSplit.by_class(train, test, 0)


def convnet() -> nn.Module:
    """A convolution in channels-last memory, whose gradients must come back in it."""
    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).double()
    torch.random.set_rng_state(state)
    return model.to(memory_format=torch.channels_last)


def quick(name: str) -> Any:
    """A method as in an epoch of seven-sample batches, the last of one or two: parts are uneven, or empty."""
    fields = make_method({"method": name}).to_dict()
    wanted = {"epochs": 1, "lr": LR, "batch_size": 7, "low": None, "high": None}
    return make_method({"method": name} | {key: value for key, value in wanted.items() if key in fields})


def variants() -> dict[str, Any]:
    """Every method there is, and settings that take another way through the Loop."""
    common = {"epochs": 1, "lr": LR, "batch_size": 7}
    return {
        **{name: quick(name) for name in list_methods() if method_class(name).only_for is None},
        "cup, one sample a batch": CUP(epochs=1, lr=LR, batch_size=1),
        "cup, adam, more retain data": CUP(**common, optimizer="adamw", weight_decay=0.1, retain_batch_size=10),
        "cup, salient weights": CUP(**common, saliency=0.3),
        "cup, random labels": CUP(**common, objective="random_label"),
        "rl, sequential": RL(**common, order="sequential"),
        "salun, sequential": SalUn(**common, order="sequential"),
        "bs, one sample a batch": BS(epochs=1, lr=LR, batch_size=1, low=None, high=None),
        "iu, cg": IU(solver="cg", batch_size=7, samples=20, tolerance=1e-10),
        "iu, shortcut": IU(solver="shortcut", batch_size=7, samples=20),
        "iu, exact": IU(solver="woodbury", batch_size=7, samples=20),
    }


def outcome(method: Any, model: nn.Module | None = None, data: ForgetSplit | None = None, **options: Any) -> Any:
    """What a run gives, as plain data."""
    result = unlearn(model or mlp(), data or split(), method, **options)
    return {
        "weights": result.model.state_dict(),
        "history": result.history,
        "scores": result.scores.to_dict(),
        "diverged": result.diverged,
        "processes": result.provenance["environment"]["processes"],
    }


def message(action: Callable[[], Any]) -> str:
    """What it refuses with."""
    try:
        action()
    except (GradPivotError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    return "not refused"


CHECKS: dict[str, Callable[[Path], Any]] = {}


def check(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
    CHECKS[function.__name__] = function
    return function


@check
def methods(folder: Path) -> Any:
    return {name: outcome(method) for name, method in variants().items()}


@check
def augmented(folder: Path) -> Any:
    return outcome(CUP(epochs=2, lr=LR, batch_size=4, augment="crop_flip"), convnet(), images())


RECORDS = CUP(gamma=1.0, epochs=2, lr=LR, batch_size=7)


def memorising() -> nn.Module:
    """:func:`memorised.memorised` in float64: it knows its members from others."""
    return memorised().double()


def some_records() -> ForgetSplit:
    """What it should forget a part of, with never-seen data beside it."""
    parts = (TensorDataset(d.tensors[0].double(), d.tensors[1]) for d in (noisy(240, 0), noisy(60, 1)))
    return ForgetSplit.random(*parts, fraction=0.1, seed=0)


@check
def records(folder: Path) -> Any:
    return outcome(RECORDS, memorising(), some_records())


@check
def frozen_batchnorm(folder: Path) -> Any:
    return outcome(CUP(epochs=1, lr=LR, batch_size=7), mlp(batchnorm=True))


@check
def train_batchnorm(folder: Path) -> Any:
    bn, small = mlp(batchnorm=True), ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    return {
        "one step": outcome(CUP(epochs=1, lr=LR, batch_size=64, batchnorm="train"), bn, split(16)),
        "recalibrated": outcome(CUP(epochs=2, lr=LR, batch_size=8, batchnorm="recalibrate"), bn),
        "dropout too": outcome(CUP(epochs=2, lr=LR, batchnorm="train"), trained(), small),
    }


@check
def diverged(folder: Path) -> Any:
    return outcome(CUP(epochs=3, lr=1e300, batch_size=7, dial="angle", momentum=0.9, objective="negative_ce"))


@check
def evaluated(folder: Path) -> Any:
    """Several batches of 512, an odd number of them."""
    return evaluate(mlp(), split(600), Classification()).to_dict()


LONG = CUP(epochs=3, lr=LR, batch_size=6, optimizer="adam")


def interrupted(path: Path) -> None:
    """A checkpoint of a run that was stopped after three steps, in every process."""
    plain, steps = Classification.retain_loss, []

    def stopping(task, model, batch):
        steps.extend([1] * torch.is_grad_enabled())
        if len(steps) > 3:
            raise KeyboardInterrupt
        return plain(task, model, batch)

    # Not a task of its own: that would be another run.
    Classification.retain_loss = stopping
    try:
        run_method(mlp(), split(), LONG, Running(checkpoint=path, checkpoint_seconds=0))
    except KeyboardInterrupt:
        return
    finally:
        Classification.retain_loss = plain
    raise AssertionError("the run was not stopped")


@check
def resumed(folder: Path) -> Any:
    interrupted(folder / "by-two.pt")
    replicas = Replicas.current()
    if replicas.is_first:
        (folder / "by-two-copy.pt").write_bytes((folder / "by-two.pt").read_bytes())
    (folder / f"damaged-{replicas.rank}.pt").write_bytes(b"damaged")
    return {
        "uninterrupted": outcome(LONG),
        "from two": outcome(LONG, checkpoint=folder / "by-two.pt"),
        "from one": outcome(LONG, checkpoint=folder / "by-one.pt"),
        # Only the first process's file counts, so that no shared disk is needed.
        "damaged": message(lambda: outcome(LONG, checkpoint=folder / f"damaged-{replicas.rank}.pt")),
        "left": sorted(p.name for p in folder.glob("by-*.pt")),
    }


@check
def reduced(folder: Path) -> Any:
    """Mixed dtypes, memory layouts, and gradients that only some processes or none have."""
    replicas = Replicas.current()
    rank = replicas.rank
    shapes = {
        "float32": torch.zeros(3, 2),
        "bfloat16": torch.zeros(4, dtype=torch.bfloat16),
        "channels_last": torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "first only": torch.zeros(2),
        "nobody": torch.zeros(2),
        "gaps": torch.zeros(4, 6)[:, ::2],
    }
    values = {name: torch.arange(t.numel()).reshape(t.shape) * (rank + 1) for name, t in shapes.items()}
    given = [
        None if name == "nobody" or (name == "first only" and rank) else t.clone().copy_(values[name])
        for name, t in shapes.items()
    ]
    buffer = torch.full((3,), float(rank))
    (forget, loss), (retain, no_loss) = replicas.mean_gradients(
        list(shapes.values()), [lambda: (given, 0.25 + rank), None], [buffer]
    )
    return {
        "gradients": dict(zip(shapes, forget, strict=True)),
        "strides": {n: None if g is None else g.stride() for n, g in zip(shapes, forget, strict=True)},
        "loss": loss,
        "not asked": (retain, no_loss),
        "buffer": buffer,
        "parts": [replicas.part(n) for n in (0, 1, 2, 7)],
        "mean": replicas.mean({"x": float(rank)}, share=(1 + 2 * rank) / 4),
    }


@check
def exchanged(folder: Path) -> Any:
    """How often, and how much, a run of two steps exchanges."""
    sizes: list[int] = []
    real = dist.all_reduce

    def counted(tensor: torch.Tensor, **options: Any) -> Any:
        sizes.append(tensor.numel())
        return real(tensor, **options)

    dist.all_reduce = counted
    try:
        Loop().run(CUP(epochs=1, batch_size=8), mlp(), Classification(), split())
    finally:
        dist.all_reduce = real
    return sizes


@check
def draws(folder: Path) -> Any:
    """Inside a loss every process draws its own numbers, outside it all draw the same; the caller's stay."""
    torch.manual_seed(7)
    seen: dict[str, float] = {}

    class Draws(Classification):
        def retain_loss(self, model, batch):
            seen["inside"] = float(torch.rand(()))
            return super().retain_loss(model, batch)

    class Looks:
        def unlearn(self, model, task, data, loop):
            for batch in loop.paired_batches(model, task, data, CUP(epochs=1, batch_size=8)):
                gradients = loop.gradients(retain=partial(task.retain_loss, model, batch.retain))
                seen["outside"] = float(torch.rand(()))
                loop.step(gradients, Weights(0.0, 1.0))

    Loop().run(Looks(), mlp(), Draws(), split())
    return seen | {"after": float(torch.rand(()))}


class Drifts:
    """A method that decides by what only one process knows."""

    def unlearn(self, model, task, data, loop):
        for batch in loop.paired_batches(model, task, data, CUP(epochs=1, batch_size=8, max_norm=None)):
            gradients = loop.gradients(retain=partial(task.retain_loss, model, batch.retain))
            loop.step(gradients, Weights(0.0, 1.0 + loop.replicas.rank))


@check
def refused(folder: Path) -> Any:
    from torch.distributed.fsdp import fully_shard

    rank = Replicas.current().rank
    sharded = fully_shard(mlp())
    train_mode = CUP(epochs=1, batch_size=3, batchnorm="train")
    return {
        "other seeds": message(lambda: outcome(CUP(epochs=1), seed=rank)),
        "other methods": message(lambda: outcome(CUP(epochs=1, gamma=0.1 * rank))),
        "drift": message(lambda: Loop().run(Drifts(), mlp(), Classification(), split())),
        "one sample each": message(lambda: outcome(train_mode, mlp(batchnorm=True))),
        "sharded": message(lambda: outcome(CUP(epochs=1), sharded)),
        "wrapped": message(lambda: outcome(CUP(epochs=1), nn.parallel.DistributedDataParallel(mlp()))),
        "not a tensor": message(lambda: Replicas.current().from_first(lambda: int("x") if rank else _refuse())),
    }


def _refuse() -> None:
    raise GradPivotError("the first one refuses")


@check
def alone(folder: Path) -> Any:
    """Inside a group, but each process by itself and another thing."""
    rank = Replicas.current().rank
    return outcome(CUP(epochs=1, lr=LR, batch_size=7), seed=rank, replicas=Replicas())


class OverflowsInOne(Classification):
    """The last process's first retain pass overflows, whatever the scale."""

    def retain_loss(self, model, batch):
        loss = super().retain_loss(model, batch)
        if loss.requires_grad:
            if not self.__dict__.get("done") and dist.get_rank():
                loss.register_hook(lambda gradient: gradient * math.inf)
            self.__dict__["done"] = True
        return loss


@check
def overflowed(folder: Path) -> Any:
    """float16 with an overflow in one process only, beside a run whose scale was right at once."""
    data = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    method = CUP(objective="random_label", batchnorm="train", epochs=1, lr=0.01)
    single = CUP(epochs=1, lr=0.01, batch_size=1)  # one process has no part in a pass
    again = [outcome(m, trained(), data, task=OverflowsInOne(), precision="float16") for m in (method, single)]
    first, precision._INITIAL_SCALE = precision._INITIAL_SCALE, precision._INITIAL_SCALE / 2
    try:
        once = [outcome(m, trained(), data, precision="float16") for m in (method, single)]
    finally:
        precision._INITIAL_SCALE = first
    return again, once


def of_rank(rank: int) -> nn.Module:
    """Another model for each process."""
    model = mlp()
    with torch.no_grad():
        model[2].weight.mul_(1 - 2 * rank)
    return model


@check
def scored_alone(folder: Path) -> Any:
    """As above, with another model in each process."""
    model = of_rank(Replicas.current().rank)
    traced = trace(model, split(), CUP(epochs=1, batch_size=7), gammas=[0.5], replicas=Replicas())
    return [traced.original.to_dict(), score(model, split(), replicas=Replicas()).to_dict()]


# Sharded weights.


class Uneven(nn.Module):
    """Layers of 7, 1 and 3 rows: with two processes pieces are unequal, and one has none of the middle layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 1), nn.Tanh(), nn.Linear(1, 3))
        self.skip = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.layers(x) + self.skip(x)
        return made


def uneven() -> nn.Module:
    state = torch.random.get_rng_state()
    torch.manual_seed(1)
    model = Uneven().double()
    torch.random.set_rng_state(state)
    return model


def batches() -> list[tuple[torch.Tensor, ...]]:
    """An epoch of (forget inputs, labels, retain inputs, labels); the next step's gradients depend on the last."""
    generator = torch.Generator().manual_seed(5)
    return [
        (
            torch.randn(8, 4, generator=generator, dtype=torch.float64),
            torch.randint(3, (8,), generator=generator),
            torch.randn(8, 4, generator=generator, dtype=torch.float64),
            torch.randint(3, (8,), generator=generator),
        )
        for _ in range(6)
    ]


def pivoted(model: nn.Module, rows: slice, way: str, masks: Any = None) -> Any:
    """An epoch of pivot steps; whole weights and what the steps told."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    pivot = Pivot(0.4, max_norm=0.5)
    told = []
    for fx, fy, rx, ry in batches():
        optimizer.zero_grad(set_to_none=way != "zeros")
        parameters = list(model.parameters())

        def losses(chosen: slice, fx=fx, fy=fy, rx=rx, ry=ry) -> tuple[Callable[[], torch.Tensor], ...]:
            return (
                lambda: -cross_entropy(model(fx[chosen]), fy[chosen]),
                lambda: cross_entropy(model(rx[chosen]), ry[chosen]),
            )

        if way == "accumulated":
            middle = (rows.start + rows.stop) // 2
            first, second = (
                [lambda loss=loss: loss() / 2 for loss in losses(part)]
                for part in (slice(rows.start, middle), slice(middle, rows.stop))
            )
            pivot.accumulate(*first, parameters)
            step = pivot.backward(*second, parameters)
        elif way == "tensors":
            step = pivot.backward(*(loss() for loss in losses(rows)), parameters)
        else:
            step = pivot.backward(*losses(rows), parameters, mask=masks)
        told.append(step.to_dict())
        optimizer.step()
    full = {n: p.full_tensor() if hasattr(p, "full_tensor") else p for n, p in model.named_parameters()}
    return {"weights": {n: p.detach().clone() for n, p in full.items()}, "told": told}


def masks_of(model: nn.Module) -> list[torch.Tensor | None]:
    generator = torch.Generator().manual_seed(9)
    drawn = [torch.rand(p.shape, generator=generator) < 0.5 for p in model.parameters()]
    return [None, *drawn[1:]]


@check
def pivot_over_shards(folder: Path) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import distribute_tensor

    rank, size = dist.get_rank(), dist.get_world_size()
    rows = slice(8 * rank // size, 8 * (rank + 1) // size)
    flat = init_device_mesh("cpu", (size,))

    def sharded(mesh: Any = flat) -> nn.Module:
        model = uneven()
        fully_shard(model.layers, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    found = {way: pivoted(sharded(), rows, way) for way in ("functions", "tensors", "accumulated", "zeros")}
    masks = [
        None if m is None else distribute_tensor(m, p.device_mesh, p.placements)
        for m, p in zip(masks_of(uneven()), sharded().parameters(), strict=True)
    ]
    found["masked"] = pivoted(sharded(), rows, "functions", masks)
    for shape in ((size, 1), (1, size)):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicas", "shards"))
        found[f"mesh {shape}"] = pivoted(sharded(mesh), rows, "functions")
    return found


@check
def ddp_by_functions(folder: Path) -> Any:
    rank, size = dist.get_rank(), dist.get_world_size()
    rows = slice(8 * rank // size, 8 * (rank + 1) // size)
    return pivoted(nn.parallel.DistributedDataParallel(uneven()), rows, "functions")


@check
def shards_refused(folder: Path) -> Any:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Partial

    fx, fy, rx, ry = batches()[0]
    pivot = Pivot(0.5)

    def losses(model: nn.Module, poison: float = 0.0) -> tuple[torch.Tensor, ...]:
        return -cross_entropy(model(fx + poison), fy), cross_entropy(model(rx), ry)

    partly, late = uneven(), fully_shard(uneven())
    fully_shard(partly.layers)
    whole = fully_shard(uneven())
    parameters = list(whole.parameters())
    # Only the last process meets a NaN; all must refuse.
    poison = math.nan if dist.get_rank() == dist.get_world_size() - 1 else 0.0
    listed = list(partly.parameters())
    found = {
        "partly": message(lambda: pivot.backward(*losses(partly), listed)),
        "partly and late": message(lambda: pivot.backward(*losses(partly), partly.parameters())),
        "late": message(lambda: pivot.backward(*losses(late), late.parameters())),
        "nan": message(lambda: pivot.backward(*losses(whole, poison), parameters)),
        "plain masks": message(lambda: pivot.backward(*losses(whole), parameters, mask=masks_of(uneven()))),
    }
    # A gradient in one process's piece only.
    for p in parameters:
        p.grad = torch.zeros_like(p)
        if dist.get_rank() == 0:
            p.grad.to_local().fill_(1)
    found["existing"] = message(lambda: pivot.backward(*losses(whole), parameters))
    from gradpivot.geometry.sharding import local

    unsummed = DTensor.from_local(torch.ones(2), parameters[0].device_mesh, [Partial()])
    found["partial"] = message(lambda: local([unsummed]))
    return found


@check
def documented(folder: Path) -> Any:
    """The Python of docs/parallel.md as it stands, in a group that is there already."""
    page = (Path(__file__).parents[1] / "docs" / "parallel.md").read_text(encoding="utf-8")
    api, sharded = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    rank = dist.get_rank()
    mine = [tuple(t[4 * rank : 4 * rank + 4] for t in batch) for batch in batches()]
    first = {"model": mlp(), "split": split()}
    second = {"model": uneven(), "batches": mine, "torch": torch}
    joined, dist.init_process_group = dist.init_process_group, lambda backend: None
    try:
        exec(api, first)
        exec(sharded, second)
    finally:
        dist.init_process_group = joined
    return {"scores": first["result"].scores.to_dict(), "step": second["step"].to_dict()}


def main() -> None:
    rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=PATIENCE),
    )
    found = {}
    for name, function in CHECKS.items():
        started = time.perf_counter()
        found[name] = function(folder)
        print(f"{name} {time.perf_counter() - started:.1f} s", flush=True)
    torch.save(found, folder / f"found-{rank}.pt")
    dist.destroy_process_group()


def together(folder: Path, size: int = 2) -> list[dict[str, Any]]:
    """What the checks gave in each of ``size`` processes."""
    interrupted(folder / "by-one.pt")
    started = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), str(size), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        told = [process.communicate(timeout=PATIENCE)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * size, "\n\n".join(told)
    return [torch.load(folder / f"found-{rank}.pt", weights_only=False) for rank in range(size)]


@pytest.fixture(scope="session")
def two_processes(tmp_path_factory) -> tuple[list[dict[str, Any]], Path]:
    """What two processes found, and their folder; started once, also if several pytest processes ask."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "two-processes"
    try:
        folder.mkdir()
    except FileExistsError:
        deadline = time.monotonic() + 2 * PATIENCE
        while not (folder / "done").exists():
            assert time.monotonic() < deadline, "the other pytest process did not finish"
            time.sleep(0.1)
    else:
        try:
            together(folder)
        finally:
            (folder / "done").touch()
    return [torch.load(folder / f"found-{rank}.pt", weights_only=False) for rank in range(2)], folder


if __name__ == "__main__":
    main()
