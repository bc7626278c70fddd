"""Keys of recorded runs."""

from __future__ import annotations

import hashlib
import json

from gradpivot.evaluate import metrics_digest
from gradpivot.runtime import environment

__all__ = ["record_key"]


def record_key(run: str, device: str, retain_scored: int | None) -> str:
    """A hash of a run and everything else its scores depend on: versions, code, metrics, threads, device."""
    facts = environment(device)
    packages = [facts["packages"][name] for name in ("torch", "numpy", "scikit-learn")]
    parts = [run, facts["gradpivot"], facts["code"], packages, facts["threads"], facts["device"], retain_scored]
    parts.append(metrics_digest())
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
