"""Benchmarks are run by hand; what they import must be there all the same."""

from __future__ import annotations

import json
import os
import re
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


def test_the_page_has_the_counts_of_100_kills():
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = re.findall(r"^(data get|unlearn|trace|sweep|all) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)$", page, re.MULTILINE)
    *commands, total = [list(map(int, counts)) for _, *counts in rows]
    assert re.search(r"^commit [0-9a-f]{7}, seed \d+$", page, re.MULTILINE)
    assert len(commands) == 4
    assert min(kills for kills, *_ in commands) >= 20
    assert [sum(column) for column in zip(*commands, strict=True)] == total == [100, total[1], 0, 0, 0]


@pytest.mark.slow
def test_killed_commands_end_as_undisturbed_ones_do():
    """A few kills; docs/reliability.md has the counts of more."""
    (script,) = (path for path in BENCHMARKS if path.stem == "reliability")
    words = [sys.executable, str(script), "--kills", "5", "--only", "get", "unlearn", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(count["kills"] for count in json.loads(done.stdout)) == 5
