from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.slow
def test_example_runs(path, tmp_path):
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "kept" in done.stdout


DOCUMENTED = sorted((ROOT / "docs" / "examples").glob("test_*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", DOCUMENTED, ids=lambda path: path.stem)
def test_the_documented_extensions_work(path, tmp_path):
    """docs/extending.md shows what somebody else might add, each with its test; all are run as they stand."""
    words = ["-q", "-p", "no:cacheprovider", "-n", "0", "-c", os.devnull, "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{path.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.slow
def test_the_documented_task_forgets(tmp_path):
    """docs/extending.md shows a task with a forget loss of its own, which ends with its claim."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "examples" / "uniform.py")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
