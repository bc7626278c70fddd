from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
import yaml

from gradpivot.cli import main
from gradpivot.cli.parser import parse
from gradpivot.models.checkpoints.weights import save_weights
from gradpivot.models.cnn import SmallCNN

QUICK = ["--classes", "3", "--epochs", "1"]
MODULE = """
import torch
from torch import nn
from gradpivot.models.images import Images
from gradpivot.methods.retrain import Retrain
from gradpivot.experiments.problem import Problem
from torch.utils.data import TensorDataset

class Net(nn.Module):
    def __init__(self, size=3 * 64):
        super().__init__()
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(size, 16), nn.ReLU())
        self.fc = nn.Linear(16, 4)
    def forward(self, images):
        assert images.is_floating_point()
        return self.fc(self.features(images))

def too_large():
    return Net(3 * 1024)

def data(seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(80) % 4
    images = torch.randint(256, (80, 3, 8, 8), generator=generator, dtype=torch.uint8)
    images[torch.arange(80), labels % 3, :4] = (40 * labels[:, None, None]).to(torch.uint8)
    return TensorDataset(images, labels)

def problem():
    return Problem(name="bytes", load=lambda: (data(0), data(1)), model=Net, images=Images(size=8, classes=4),
                   training=Retrain(epochs=3, lr=0.05, batch_size=16), settings={"batch_size": 8})
"""


def error_of(capsys) -> str:
    message = capsys.readouterr().err
    assert message.startswith("gradpivot: ")
    assert message.count("\n") == 1
    return message


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A problem of images as bytes, and models, in the current folder."""
    (tmp_path / "my_bytes.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # γ = 0 is reached by any run.
    yield ["--problem", "my_bytes:problem", "--classes", "1", "--epochs", "1", "--gamma", "0"]
    sys.modules.pop("my_bytes", None)


def test_a_model_by_name_is_trained_unlearned_and_run_again(mine, capsys):
    words = ["unlearn", "cup", *mine, "--model", "my_bytes:Net", "--normalise", "0.5/0.25", "--out", "run"]
    assert main(words) == 0
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    assert (config["model"], config["normalise"]) == ("my_bytes:Net", "0.5/0.25")
    assert "map" not in config
    capsys.readouterr()
    assert main(["rerun", "run"]) == 0
    assert "to the last digit" in capsys.readouterr().out


def test_a_foreign_checkpoint_into_a_model_of_ones_own(mine, capsys):
    import my_bytes

    state = {f"module.{key}".replace("features", "body"): v for key, v in my_bytes.Net().state_dict().items()}
    torch.save({"state_dict": state, "epoch": 9}, "theirs.pth")
    words = ["unlearn", "cup", *mine, "--model", "my_bytes:Net", "--weights", "theirs.pth", "--out", "run"]
    assert main(words) == 1
    assert "does not fit this model: 2 missing (" in error_of(capsys)
    assert main([*words, "--map", "body=features"]) == 0
    told = capsys.readouterr().err
    assert "taken from 'state_dict'; renamed by body=features; 'module.' in front is 'model.' here" in told
    assert yaml.safe_load(Path("run/config.yaml").read_text())["map"] == ["body=features"]
    # The original is kept under the model's own names; the rule must not be applied to them.
    Path("theirs.pth").unlink()
    assert main(["rerun", "run"]) == 0
    assert "to the last digit" in capsys.readouterr().out


def test_several_rules_from_a_file(tmp_path):
    (tmp_path / "o.yaml").write_text("map: [a=b, '^c=']\nweights: w.pt\n")
    chosen = parse(["trace", "--config", str(tmp_path / "o.yaml"), "--classes", "1"])
    assert chosen.map == ("a=b", "^c=")
    assert parse(["unlearn", "cup", "--map", "a=b", "c=-", "--classes", "1"]).map == ("a=b", "c=-")


def test_built_in_models_on_built_in_problems(tmp_path, capsys):
    model = SmallCNN()
    with torch.no_grad():
        # It calls everything a zero.
        model.linear.weight.zero_()
        model.linear.bias.copy_(torch.arange(10) == 0)
    torch.save({"net": model.state_dict()}, tmp_path / "w.pt")
    words = ["--model", "cnn", "--weights", str(tmp_path / "w.pt"), "--out", str(tmp_path / "run")]
    assert main(["unlearn", "cup", *QUICK, *words]) == 0
    assert "no better than chance; are these its weights" in capsys.readouterr().err


@pytest.mark.slow
def test_a_frontier_of_another_model_and_another_normalisation_shares_no_record(mine, capsys):
    import my_bytes

    torch.save(my_bytes.Net().state_dict(), "w.pt")
    words = ["trace", "cup", *mine, "--model", "my_bytes:Net", "--weights", "w.pt", "--values", "0.5", "--out", "t"]
    words += ["--no-reference"]
    assert main(words) == 0
    first = set(Path("t/runs").rglob("*.json"))
    assert main(words) == 0
    assert set(Path("t/runs").rglob("*.json")) == first
    assert main([*words, "--normalise", "0.5/0.25"]) == 0
    assert len(set(Path("t/runs").rglob("*.json"))) == 2 * len(first)
    assert json.loads(Path("t/results.json").read_text())["provenance"]["model"] == "my_bytes:Net"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--map", "a=b"], "add --weights"),
        (["--normalise", "none"], "needs --model"),
        (["--model", "resnet19"], "did you mean 'resnet18'"),
        (["--model", "my_bytes:nothing"], "module my_bytes has no attribute 'nothing'"),
        (["--model", "my_bytes:data"], "missing 1 required positional argument"),
        (["--model", "my_bytes:too_large"], "cannot be run on the data (RuntimeError: mat1 and mat2"),
        (["--model", "resnet20", "--normalise", "imagnet"], "write none, cifar10, imagenet"),
        (["--model", "resnet20", "--weights", "none.pt"], "there is no weights file"),
        (["--model", "resnet20", "--problem", "toy"], "set images=Images"),
    ],
)
def test_what_people_get_wrong_is_one_line_and_nothing_is_trained(mine, words, message, capsys):
    assert main(["unlearn", "cup", *mine, *words, "--out", "run"]) == 1
    assert message in error_of(capsys)
    assert not Path("run").exists()


def test_weights_that_are_not_numbers_are_refused(mine, capsys):
    import my_bytes

    state = my_bytes.Net().state_dict()
    state["fc.bias"][1] = float("nan")
    torch.save(state, "w.pt")
    assert main(["unlearn", "cup", *mine, "--weights", "w.pt", "--out", "run"]) == 1
    assert "the weight fc.bias contains NaN" in error_of(capsys)


def test_the_problems_own_original_goes_with_its_model():
    from gradpivot.experiments import find_problem, with_model

    assert find_problem("cifar10").original is not None
    assert with_model(find_problem("cifar10"), "resnet20").original is None


def test_own_files_of_a_bare_model_fit_it_behind_pixels(mine):
    import my_bytes

    save_weights(my_bytes.Net(), "own.safetensors")
    words = ["--model", "my_bytes:Net", "--weights", "own.safetensors", "--out", "run"]
    assert main(["unlearn", "cup", *mine, *words]) == 0
