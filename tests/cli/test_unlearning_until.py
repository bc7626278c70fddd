"""``gradpivot unlearn --until … --keep …`` on a problem that trains in a moment."""

from __future__ import annotations

import json
import uuid

import pytest
import yaml

from gradpivot.cli import main
from gradpivot.data.split import ForgetSplit
from gradpivot.testing.problems import blobs

MODULE = """
from gradpivot.methods.retrain import Retrain
from gradpivot.experiments.problem import Problem
from gradpivot.testing.problems import TinyNet, blobs

def problem():
    return Problem(name="tiny", load=lambda: (blobs(), blobs(seed=1)), model=TinyNet,
                   training=Retrain(epochs=20, lr=0.1, batch_size=20), settings={"batch_size": 8})
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"tiny_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{name}.py").write_text(MODULE)

    def run(*words: str) -> int:
        return main(["unlearn", *words, "--problem", f"{name}:problem", "--classes", "0", "--out", "run"])

    return run


@pytest.mark.numeric
def test_a_target_that_is_met(tiny, tmp_path, capsys):
    assert tiny("--until", "UA>=60", "--keep", "RA>=80") == 0
    out = capsys.readouterr().out
    assert "UA>=60 with RA>=80 is met" in out
    folder = tmp_path / "run"
    assert not list(folder.glob("checkpoint*"))
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert (config["until"], config["keep"]) == ("UA>=60", "RA>=80")
    metrics = json.loads((folder / "metrics.json").read_text())
    target = metrics["provenance"]["target"]
    assert target["met"]
    assert target["binding"] is None
    assert target["steered_on"]["validation_source"] == "half of test"
    assert metrics["scores"]["ua"] == target["seen"]["ua"] >= 0.6
    loaded = ForgetSplit.load(folder / "split.json", blobs(), blobs(seed=1))
    assert loaded.validation_source == "half of test"
    assert main(["rerun", "run"]) == 0


@pytest.mark.numeric
def test_a_target_that_is_not_met_exits_with_4_and_leaves_the_compromise(tiny, tmp_path, capsys):
    assert tiny("--until", "UA>=60", "--keep", "MIA<=0", "--json") == 4
    told = capsys.readouterr()
    target = json.loads(told.out)["provenance"]["target"]
    assert not target["met"]
    assert target["binding"] == "MIA<=0"
    assert told.err.startswith("gradpivot: UA>=60 with MIA<=0 was not met: MIA<=0 binds")
    assert told.err.count("\n") == 1
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert not list((tmp_path / "run").glob("checkpoint*"))
    missed = json.loads(told.out)["missed"]
    assert told.err == f"gradpivot: {missed}\n"
    assert missed.endswith("Relax a condition, or use more epochs")
    assert main(["rerun", "run"]) == 4
    told = capsys.readouterr()
    assert "to the last digit" in told.out
    assert told.err.count(missed) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--until", "UA>=120"], "between 0 and 100"),
        (["--until", "SPEED>=1"], "unknown score"),
        (["--until", "UA>=0.95"], "UA>=0.95 asks for 0.95 %; write UA>=95, or UA>=0.95% if that is what you mean"),
        (["--keep", "RA>=99"], "until is empty"),
        (["--until", ""], "until is empty"),
        (["--until", "UA>=90", "--keep", "UA<=80"], "exclude each other"),
        (["retrain", "--until", "UA>=90"], "Retrain trains from scratch"),
    ],
)
def test_what_is_mistyped_is_one_line_before_anything_is_trained(tiny, tmp_path, capsys, words, message):
    assert tiny(*words) == 1
    told = capsys.readouterr().err
    assert told.startswith("gradpivot: ")
    assert told.count("\n") == 1
    assert message in told
    assert not (tmp_path / "run").exists()


def test_an_original_that_meets_the_target_is_no_run(tiny, tmp_path, capsys):
    assert tiny("--until", "UA<=99") == 0
    assert "the original already meets UA<=99" in capsys.readouterr().out
    kept = [(tmp_path / "run" / f"{name}.safetensors").read_bytes()[-64:] for name in ("original", "model")]
    assert kept[0] == kept[1]
