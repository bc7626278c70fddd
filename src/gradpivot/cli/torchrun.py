"""Run under torchrun: join the process group, and report each failure only once.

Imports torch only when needed, so that ``--help`` stays fast.
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
"""Seconds that a process waits before it exits without a report; torchrun usually ends it sooner."""
_WAIT = timedelta(days=1)
"""Timeout of collectives: the first process may train the original for hours. Dead processes are noticed at once."""
_store: Any = None
"""Key-value store shared by the processes; None before they join."""


def launched() -> bool:
    """Whether torchrun, or a launcher that sets the same variables, started this process."""
    return all(name in os.environ for name in _VARIABLES) and os.environ["WORLD_SIZE"] != "1"


def is_first() -> bool:
    """Whether this process writes files and prints."""
    return not launched() or os.environ["RANK"] == "0"


@contextmanager
def joined(kind: str) -> Iterator[Replicas]:
    """Join torchrun's process group for the block; a no-op for a single process.

    Args:
        kind: ``cuda`` for one GPU per process, set as its current device, and NCCL; ``cpu`` for CPUs and gloo.

    Raises:
        GradPivotError: If there are fewer GPUs than processes.
    """
    from gradpivot.runtime import Replicas

    if not launched():
        yield Replicas.current()
        return
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    global _store
    gpus, processes = torch.cuda.device_count() if kind == "cuda" else 0, int(os.environ["LOCAL_WORLD_SIZE"])
    if 0 < gpus < processes:
        raise GradPivotError(
            f"torchrun started {processes} processes on a machine with {gpus} GPUs; start at most {gpus} with "
            f"--nproc-per-node, or use CPUs with --device cpu"
        )
    if gpus:
        torch.cuda.set_device(device_of_process(kind))
    _store, rank, size = next(rendezvous("env://"))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if gpus else "gloo", store=_store, rank=rank, world_size=size, timeout=_WAIT
    )
    # Not in a finally block: after a failure the other processes must notice that this one is gone.
    yield Replicas.current()
    dist.destroy_process_group()


def device_of_process(kind: str) -> str:
    """This process's device; under torchrun each process has its own GPU."""
    return f"cuda:{os.environ['LOCAL_RANK']}" if kind == "cuda" and launched() else kind


def may_speak(message: str, *, of_others: bool = False) -> bool:
    """Whether this process reports a failure; each one is reported once, by the first process that hits it.

    Args:
        message: The error message.
        of_others: Whether the failure is that another process is gone; reported only if that one reported nothing.
    """
    if _store is None:
        if not is_first():
            # Before the processes join, a failure usually hits the first one too, which reports it, and torchrun
            # ends this process. If that doesn't happen, the failure is in this process only.
            let_others_speak()
        return True
    with suppress(Exception):
        # The store is lost with the process that hosts it; report the failure then.
        if of_others and _store.check(["gradpivot/reported"]):
            return False
        _store.set("gradpivot/reported", "1")
        return bool(_store.add(f"gradpivot/reported/{message}", 1) == 1)
    return True


def let_others_speak() -> None:
    """Wait before exiting: torchrun ends all processes when one exits, and another may still report the reason."""
    time.sleep(_SILENT_SECONDS)
