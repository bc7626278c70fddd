"""The identity of a recorded run."""

from __future__ import annotations

import hashlib
import json

from gradpivot.evaluate import metrics_digest
from gradpivot.runtime import environment

__all__ = ["record_key"]


def record_key(run: str, device: str, retain_scored: int | None) -> str:
    """A run and what else its scores depend on: a record of other versions, code, metrics or threads is not reused."""
    facts = environment(device)
    packages = [facts["packages"][name] for name in ("torch", "numpy", "scikit-learn")]
    place = [run, facts["gradpivot"], facts["code"], packages, facts["threads"], facts["device"], retain_scored]
    place.append(metrics_digest())
    return hashlib.sha256(json.dumps(place).encode()).hexdigest()[:16]
