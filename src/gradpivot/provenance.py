"""Where a number comes from: versions, machine class, threads, date. No host name, no path, no user."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gradpivot.version import __version__

__all__ = ["environment"]

_PACKAGES = ("torch", "numpy", "scikit-learn", "moocore", "safetensors")


def environment(device: str = "cpu") -> dict[str, Any]:
    """Everything outside the settings that can change a number."""
    import torch

    return {
        "gradpivot": __version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "device": device if device == "cpu" else torch.cuda.get_device_name(device),
        "threads": torch.get_num_threads(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "date": datetime.now(UTC).date().isoformat(),
    }


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
