"""Identify a process across machines, containers and reused pids."""

from __future__ import annotations

import socket
from pathlib import Path

__all__ = ["host_name", "process_start"]


def host_name() -> str:
    """Host name and pid namespace: containers may share the name but not the processes."""
    try:
        seen = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        seen = ""
    return f"{socket.gethostname()} {seen}".strip()


def process_start(pid: int) -> int | None:
    """Start time of a process in kernel ticks; None if it is gone, 0 if the system has no /proc.

    Pid and start time identify a process: pids are reused, and a killed process keeps its pid until its parent reaps
    it (state Z).
    """
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else 0
    except OSError:
        return None
    return None if state == "Z" else int(rest[18])
