"""gradpivot judge: samples of generators, judged alike."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

pytest.importorskip("diffusers")

from gradpivot.cli.main import main
from gradpivot.models.checkpoints.weights import save_weights
from tiny_generator import MODULE


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"tiny_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{name}.py").write_text(MODULE.replace("LEARN", "12"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return f"{name}:generator"


def weights(problem: str, name: str, seed: int) -> str:
    import torch

    from gradpivot.experiments.problem import find_problem

    torch.manual_seed(seed)
    path = Path(name) / "model.safetensors"
    path.parent.mkdir()
    save_weights(find_problem(problem).model(), path, {})
    return str(path)


def test_models_are_judged_alike_and_their_pictures_kept(problem, capsys):
    one, two = weights(problem, "first", 0), weights(problem, "second", 1)
    words = ["judge", "--problem", problem, "--classes", "1", "--samples", "3", "--out", "judged"]
    assert main([*words, "--weights", one, two]) == 0
    told = capsys.readouterr().out
    assert "first" in told
    assert "9 samples per model" in told
    found = json.loads(Path("judged/judged.json").read_text())
    assert [row["name"] for row in found["models"]] == ["first", "second"]
    assert found["judging"]["samples"] == 3
    assert Path("judged/first.png").read_bytes() != Path("judged/second.png").read_bytes()
    # The classifier is kept, and a model is judged the same alone.
    kept = Path("judged/classifier.safetensors")
    changed = kept.stat().st_mtime_ns
    assert main([*words, "--weights", two, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == found["models"][1:]
    assert kept.stat().st_mtime_ns == changed


def test_what_was_judged_is_not_drawn_again(problem, capsys, monkeypatch):
    """A judge that was killed goes on: finished models, the classifier and what is known of real images are kept."""
    from gradpivot.evaluate.generators.scorer import SampleScorer

    one, two = weights(problem, "first", 0), weights(problem, "second", 1)
    words = ["judge", "--problem", problem, "--classes", "1", "--samples", "3", "--out", "judged", "--json"]
    drawn = []
    real = SampleScorer.examine
    monkeypatch.setattr(SampleScorer, "examine", lambda self, *given: drawn.append(1) or real(self, *given))

    def judged(*more: str) -> tuple[list, int]:
        drawn.clear()
        assert main([*words, *more]) == 0
        return json.loads(capsys.readouterr().out)["models"], len(drawn)

    first, count = judged("--weights", one)
    assert count == 1
    statistics = Path("judged/real-classifier.safetensors")
    written = statistics.stat().st_mtime_ns
    both, count = judged("--weights", one, two)
    assert (both[0], count) == (first[0], 1)
    assert statistics.stat().st_mtime_ns == written
    assert judged("--weights", one, two) == (both, 0)
    # What cannot be read, has lost its picture or is of something else is judged anew.
    Path("judged/first.scores.json").write_text("{")
    Path("judged/second.png").unlink()
    statistics.write_bytes(b"")
    assert judged("--weights", one, two) == (both, 2)
    assert judged("--weights", one, "--guidance", "0.5")[1] == 1
    assert judged("--weights", one, "--reference-images", "10")[0][0]["scores"]["frechet"][0]["n_reference"] == 10


def test_what_cannot_be_judged_is_told(problem, capsys):
    one = weights(problem, "first", 0)
    for words, why in (
        (["--problem", problem, "--weights", one], "name the forgotten classes"),
        (["--problem", "digits", "--weights", one, "--classes", "3"], "digits is not a generator"),
        (["--problem", problem, "--weights", one, "--classes", "7"], "7"),
        (["--problem", problem, "--weights", "no.safetensors", "--classes", "1"], "no.safetensors"),
        (["--problem", problem, "--weights", one, "--classes", "1", "--samples", "1"], "samples is 1"),
        (["--problem", problem, "--weights", one, "--classes", "1", "--steps", "90"], "steps is 90"),
        (
            ["--problem", problem, "--weights", one, "--classes", "1", "--reference-images", "0"],
            "reference_images is 0",
        ),
    ):
        assert main(["judge", *words, "--out", "judged"]) == 1
        error = capsys.readouterr().err.strip()
        assert why in error
        assert len(error.splitlines()) == 1


def test_a_target_of_a_generator_is_about_its_samples(problem, capsys):
    one = weights(problem, "first", 0)
    words = ["unlearn", "cup", "--problem", problem, "--weights", one, "--classes", "1", "--iterations", "2"]
    assert main([*words, "--until", "UA>=0", "--out", "met"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "the original already meets UA>=0" in told
    assert "after RA" in told
    assert Path("met/classifier.safetensors").exists()
    found = json.loads(Path("met/metrics.json").read_text())
    assert found["scores"] == found["original"]
    assert main([*words, "--until", "TA>=50", "--out", "unknown"]) == 1
    assert "SampleScorer does not provide TA; use UA and RA" in capsys.readouterr().err


def test_unlearning_a_generator_judges_it_and_can_be_run_again(problem, capsys):
    one = weights(problem, "first", 0)
    words = ["unlearn", "cup", "--problem", problem, "--weights", one, "--iterations", "2", "--dial", "angle"]
    assert main([*words, "--classes", "1", "--out", "run"]) == 0
    before, after, *_ = capsys.readouterr().out.splitlines()
    assert before.startswith("before  RA ")
    assert "UA " in after
    assert "Fréchet distance" in after
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert metrics["scores"]["asked"] == [0, 1, 2]
    assert metrics["asked_ua"] is None
    assert Path("run/samples.png").read_bytes().startswith(b"\x89PNG")
    # judge says the same of the same weights, by the same classifier.
    judge = ["judge", "--problem", problem, "--classes", "1", "--out", "judged", "--json"]
    assert main([*judge, "--weights", "run/model.safetensors", "--classifier", "run/classifier.safetensors"]) == 0
    assert json.loads(capsys.readouterr().out)["models"][0]["scores"] == metrics["scores"]
    # The second run takes the classifier of the first.
    assert main(["rerun", "run"]) == 0
    assert "The same scores to the last digit: RA" in capsys.readouterr().out
    # Records are no classes that samples could be judged by.
    assert main([*words, "--fraction", "0.1", "--out", "records"]) == 0
    assert "(no UA or RA: samples were not judged)" in capsys.readouterr().out
    assert main(["rerun", "records"]) == 0
    assert "to the last digit: loss" in capsys.readouterr().out
