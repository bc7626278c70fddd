"""The processes that torchrun starts: how the command line joins them, and how they speak with one voice.

No torch is imported here before it is needed, so that ``--help`` stays instant.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from gradpivot.runtime import Replicas

__all__ = ["device_of_process", "is_first", "joined", "launched", "let_others_speak", "may_speak"]

_VARIABLES = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_SILENT_SECONDS = 3.0
"""Seconds a silent process waits before it exits; torchrun usually ends it sooner."""
_WAIT = timedelta(days=1)
"""Timeout between processes: the first may train the original for hours. A process that dies is noticed at once."""
_store: Any = None
"""The store the processes share once they have joined."""


def launched() -> bool:
    """Whether torchrun, or a launcher that sets the same variables, started this process."""
    return all(name in os.environ for name in _VARIABLES) and os.environ["WORLD_SIZE"] != "1"


def is_first() -> bool:
    """Whether this process writes files and prints."""
    return not launched() or os.environ["RANK"] == "0"


@contextmanager
def joined(kind: str) -> Iterator[Replicas]:
    """Join the processes that torchrun started, for the block; a no-op for a single process.

    Args:
        kind: ``cuda`` for a GPU each, which becomes the current device, and NCCL; ``cpu`` for CPUs and gloo.

    Raises:
        GradPivotError: if there are GPUs, but too few.
    """
    from gradpivot.runtime import Replicas

    if not launched():
        yield Replicas.current()
        return
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    global _store
    gpus, here = torch.cuda.device_count() if kind == "cuda" else 0, int(os.environ["LOCAL_WORLD_SIZE"])
    if 0 < gpus < here:
        raise GradPivotError(
            f"torchrun started {here} processes on a machine with {gpus} GPUs; start at most {gpus} with "
            f"--nproc-per-node, or use CPUs with --device cpu"
        )
    if gpus:
        torch.cuda.set_device(device_of_process(kind))
    _store, rank, size = next(rendezvous("env://"))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if gpus else "gloo", store=_store, rank=rank, world_size=size, timeout=_WAIT
    )
    # Not in a finally block: after a failure the others must see that this process is gone.
    yield Replicas.current()
    dist.destroy_process_group()


def device_of_process(kind: str) -> str:
    """This process's device of that kind (``cpu``, ``cuda``); under torchrun each process has its own GPU."""
    return f"cuda:{os.environ['LOCAL_RANK']}" if kind == "cuda" and launched() else kind


def may_speak(message: str, *, of_others: bool = False) -> bool:
    """Whether this process reports a failure: each is reported once, by the first process that hits it.

    Args:
        message: What went wrong.
        of_others: The failure is that another process is gone; it is reported only if that one reported nothing.
    """
    if _store is None:
        if not is_first():
            # A failure before the processes have joined usually hits the first one too, which then reports it, and
            # torchrun ends this one. If torchrun doesn't, the failure is this process's own.
            let_others_speak()
        return True
    with suppress(Exception):
        # The store goes with the process that keeps it; then nobody can have been asked.
        if of_others and _store.check(["gradpivot/told"]):
            return False
        _store.set("gradpivot/told", "1")
        return bool(_store.add(f"gradpivot/told/{message}", 1) == 1)
    return True


def let_others_speak() -> None:
    """Wait a moment: torchrun ends all processes when the first one exits, and another may have to report why."""
    time.sleep(_SILENT_SECONDS)
