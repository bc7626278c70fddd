"""Engines by name: ours by being there, others' by entry point or import path."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradpivot.cli import main
from gradpivot.sweep.engines.registry import list_engines

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.mark.parametrize("name", ["in-process", "my_engine:start"])
def test_somebodys_engine_does_a_sweep(name, lab, install, monkeypatch, capsys):
    """The documented one, in this process."""
    monkeypatch.syspath_prepend(EXAMPLES)
    install("gradpivot.engines", **{"in-process": "my_engine:start", "local": "my_engine:start"})
    assert list_engines() == ["in-process", "local", "ray"]
    words = ["sweep", str(lab.path), "--store", str(lab.store_folder), "--engine", name, "--classes", "0"]
    assert main(words) == 0
    assert f"{lab.CELLS // 2} of {lab.CELLS // 2} runs are in" in " ".join(capsys.readouterr().out.split())
    assert not (lab.store_folder / "worker.log").exists()


def test_a_slip_gets_a_suggestion(lab, capsys):
    words = ["sweep", str(lab.path), "--store", str(lab.store_folder), "--engine"]
    assert main([*words, "locl"]) == 1
    assert "there is no engine 'locl'; did you mean 'local'?" in capsys.readouterr().err
    assert main([*words, "no_such_module:start"]) == 1
    assert "no module named 'no_such_module'" in capsys.readouterr().err
