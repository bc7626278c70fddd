"""Settings of all tests."""

from __future__ import annotations

import os

import torch
from hypothesis import settings

# A problem to sweep, for tests/sweep and tests/cli.
pytest_plugins = ["lab"]

# CI must not fail on a new random example that nobody has seen; developers' runs go on exploring.
settings.register_profile("ci", derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# Bit-identical repeats are promised for one thread count; small models are fastest with one.
torch.set_num_threads(1)
