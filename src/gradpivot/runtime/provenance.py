"""Where a number comes from: versions, machine class, threads, date. No host name, no path, no user."""

from __future__ import annotations

import hashlib
import os
import platform
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gradpivot import __version__

__all__ = ["code_digest", "environment"]

_PACKAGES = (
    "torch", "numpy", "scikit-learn", "diffusers", "moocore", "safetensors", "torchjd", "quadprog", "cvxpy",
)  # fmt: skip
# What only reads, shows, fetches or hands out decides no number; the data's content has a digest of its own.
_DECIDES_NOTHING = (
    "cli", "report", "frontier", "sweep", "testing", "progress.py", "run_folder.py", "torchrun.py", "atomic.py",
    "data/archive.py", "data/cache.py", "data/catalogue.py", "data/fetch.py", "data/getting.py", "data/pickled.py",
    "data/png.py",
)  # fmt: skip
_DECIDES_ALL_THE_SAME = ("sweep/original.py", "sweep/work.py")


def environment(device: str = "cpu") -> dict[str, Any]:
    """Everything outside the settings that can change a number."""
    import torch

    return {
        "gradpivot": __version__,
        "code": code_digest(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "threads": torch.get_num_threads(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "date": datetime.now(UTC).date().isoformat(),
    }


@cache
def code_digest() -> str:
    """12 hexadecimal digits over the source that decides numbers: between releases the version stays the same."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        part = path.relative_to(package).as_posix()
        idle = part in _DECIDES_NOTHING or part.split("/")[0] in _DECIDES_NOTHING
        if not idle or part in _DECIDES_ALL_THE_SAME:
            digest.update(f"{part}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
