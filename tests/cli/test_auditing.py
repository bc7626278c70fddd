"""gradpivot audit: a run's folder, other people's weights, levels, and what people get wrong."""

import json

import pytest
import torch

from gradpivot.cli import main

RUN = ["--problem", "toy", "--classes", "2", "--epochs", "1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audited") / "run"
    # A run this short may not reach its degree.
    assert main(["unlearn", "cup", "--gamma", "1", *RUN, "--out", str(folder)]) in (0, 4)
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_folder_is_audited(run, here, capsys):
    assert main(["audit", str(run), "--out", "evidence"]) == 0
    shown = capsys.readouterr().out
    assert "Does forgotten knowledge return?" in shown
    assert "evidence/audit.html" in shown
    saved = json.loads((here / "evidence/audit.json").read_text(encoding="utf-8"))
    assert saved["problem"]["name"] == "toy"
    assert saved["provenance"]["method"]["gamma"] == 1
    assert {"audited", "original"} == set(saved["provenance"]["weights"])


def test_an_audit_is_not_replaced_unless_asked(run, here, capsys):
    assert main(["audit", str(run), "--out", "evidence"]) == 0
    assert main(["audit", str(run), "--out", "evidence"]) == 1
    assert "already holds an audit" in capsys.readouterr().err
    assert main(["audit", str(run), "--out", "evidence", "--overwrite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "gradpivot.audit/1"


def test_level_standard_trains_a_reference_once(run, here, capsys):
    words = ["audit", str(run), "--level", "standard", "--out", "evidence"]
    assert main(words) == 0
    saved = json.loads((here / "evidence/audit.json").read_text(encoding="utf-8"))
    assert "retrained 1" in saved["provenance"]["weights"]
    (kept,) = (here / "evidence").glob("retrained-*.safetensors")
    made = kept.stat().st_mtime_ns
    assert main([*words, "--overwrite"]) == 0
    assert kept.stat().st_mtime_ns == made
    assert main([*words, "--overwrite", "--seed", "1"]) == 0
    assert len(list((here / "evidence").glob("retrained-*.safetensors"))) == 2


@pytest.mark.slow
def test_level_full_runs_shadow_worlds_once(run, here, capsys):
    words = ["audit", str(run), "--level", "full", "--shadows", "4", "--jobs", "1", "--store", "shadows"]
    assert main([*words, "--out", "evidence"]) == 0
    saved = json.loads((here / "evidence/audit.json").read_text(encoding="utf-8"))
    assert saved["provenance"]["shadows"] == 4
    assert "ulira" in {found["name"] for found in saved["attacks"]}
    finished = sorted(file.stat().st_mtime_ns for file in (here / "shadows/runs").rglob("*.json"))
    assert main([*words, "--out", "again"]) == 0
    assert sorted(file.stat().st_mtime_ns for file in (here / "shadows/runs").rglob("*.json")) == finished


def test_a_model_of_other_software_is_welcome(run, here, capsys):
    from gradpivot.experiments import find_problem
    from gradpivot.models import load_weights

    model = find_problem("toy").model()
    load_weights(model, run / "model.safetensors")
    torch.save(model.state_dict(), here / "new.pt")
    words = ["audit", "--problem", "toy", "--weights", "new.pt", "--split", str(run / "split.json"), "--out", "e"]
    assert main([*words, "--level", "full"]) == 0
    assert "U-LiRA" in capsys.readouterr().out
    saved = json.loads((here / "e/audit.json").read_text(encoding="utf-8"))
    assert saved["provenance"]["method"] is None
    assert "shadow models" in saved["not_tested"]["U-LiRA"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name a run's folder, or the model and what it forgot"),
        (["nowhere"], "there is no folder nowhere"),
        (["run", "--level", "full", "--shadows", "2"], "at least 4 worlds"),
        (["--weights", "new.pt", "--split", "no.json"], "no split file no.json"),
        (["--weights", "no.pt"], "name a run's folder, or the model"),
    ],
)
def test_what_is_missing_is_said_in_one_line(here, capsys, words, says):
    assert main(["audit", *words]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_a_level_that_is_not_there(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["audit", "run", "--level", "quik"])
    assert stop.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
