"""Benchmarks are run by hand; what they import must be there all the same."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_it_imports(path, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)
    runpy.run_path(str(path), run_name="imported")


@pytest.mark.slow
def test_killed_commands_end_as_undisturbed_ones_do():
    """A few kills; docs/reliability.md has the counts of more."""
    (script,) = (path for path in BENCHMARKS if path.stem == "reliability")
    words = [sys.executable, str(script), "--kills", "5", "--only", "get", "unlearn", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(count["kills"] for count in json.loads(done.stdout)) == 5
