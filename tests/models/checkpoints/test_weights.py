from __future__ import annotations

import errno

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from gradpivot.errors import GradPivotError
from gradpivot.loop.checkpoint import Checkpoint
from gradpivot.models.checkpoints.foreign import load_foreign
from gradpivot.models.checkpoints.weights import (
    check_constants,
    constants,
    load_weights,
    save_weights,
    structure,
    weights_digest,
)
from gradpivot.models.pixels import OnPixels, Pixels
from gradpivot.testing.problems import TinyNet, trained


def test_round_trip_with_facts(tmp_path):
    model = trained()
    save_weights(model, tmp_path / "w.safetensors", {"seed": 3})
    other = type(model)()
    assert load_weights(other, tmp_path / "w.safetensors", expected={"seed": 3}) == {"seed": 3}
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in other.state_dict().items())


def test_tied_weights(tmp_path):
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    save_weights(tied, tmp_path / "w.safetensors")
    again = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    again[1].weight = again[0].weight
    load_weights(again, tmp_path / "w.safetensors")
    assert torch.equal(again[1].weight, tied[0].weight)


def test_what_cannot_be_loaded_is_explained(tmp_path):
    path = tmp_path / "w.safetensors"
    with pytest.raises(GradPivotError, match="no weights file"):
        load_weights(trained(), path)
    save_weights(trained(), path, {"seed": 1})
    with pytest.raises(GradPivotError, match="was made with"):
        load_weights(trained(), path, expected={"seed": 2})
    with pytest.raises(GradPivotError, match="does not fit this model"):
        load_weights(nn.Linear(2, 2), path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(GradPivotError, match="damaged"):
        load_weights(trained(), path)


def test_a_full_disk_is_an_os_error_whoever_writes(tmp_path, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError, match="No space left") as caught:
        save_weights(trained(), tmp_path / "w.safetensors")
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_on_a_full_disk_is_an_os_error(tmp_path, monkeypatch):
    from contextlib import contextmanager
    from pathlib import Path

    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full, which Linux has")

    @contextmanager
    def on_a_full_disk(path):
        yield Path("/dev/full")

    monkeypatch.setattr("gradpivot.loop.checkpoint.replacing", on_a_full_disk)
    with pytest.raises(OSError, match="No space left"):
        Checkpoint(tmp_path / "c.pt", "key", 0).save_if_due(lambda: {"x": torch.zeros(100_000)})


def test_a_digest_is_of_all_that_decides_outputs():
    model = trained()
    before = weights_digest(model)
    assert weights_digest(trained()) == before
    with torch.no_grad():
        next(model.parameters())[0] += 1e-6
    assert weights_digest(model) != before
    # A normalisation is not among the saved weights, and still another one makes another model.
    digests = {weights_digest(OnPixels(pixels, trained())) for pixels in (Pixels(), Pixels((0.5,), (0.25,)))}
    assert len(digests) == 2


def test_weights_know_the_normalisation_they_belong_to(tmp_path):
    """It is not among the saved tensors; under another one the same weights are another model."""
    path = tmp_path / "w.safetensors"
    save_weights(OnPixels(Pixels((0.5,), (0.25,)), trained()), path)
    load_weights(OnPixels(Pixels((0.5,), (0.25,)), trained()), path)
    load_foreign(OnPixels(Pixels((0.5,), (0.25,)), trained()), path)
    other = OnPixels(Pixels(), trained())
    for load in (load_weights, load_foreign):
        with pytest.raises(GradPivotError, match=r"trained with pixels\.mean = 0\.5, but this model has 0; use the"):
            load(other, path)


def test_other_peoples_files_say_nothing_of_it(tmp_path):
    path = tmp_path / "w.pt"
    model = OnPixels(Pixels((0.5,), (0.25,)), trained())
    torch.save(model.state_dict(), path)
    load_foreign(OnPixels(Pixels(), trained()), path)
    assert constants(model) == {"pixels.mean": [0.5], "pixels.std": [0.25]}


class Waves(nn.Sequential):
    """The same weights as any Sequential of these layers."""


@pytest.mark.parametrize(
    "other",
    [
        nn.Sequential(nn.Linear(2, 2), nn.Tanh()),
        nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU(0.2)),
        nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Dropout()),
        Waves(nn.Linear(2, 2), nn.ReLU()),
    ],
)
def test_the_structure_tells_networks_of_the_same_weights_apart(other):
    plain = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    other.load_state_dict(plain.state_dict())
    assert structure(other) != structure(plain)
    assert structure(plain) == structure(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))


def test_a_network_of_ours_keeps_its_structure_when_its_file_is_moved(monkeypatch):
    before = structure(TinyNet())
    monkeypatch.setattr(TinyNet, "__module__", "gradpivot.elsewhere")
    assert structure(TinyNet()) == before
    monkeypatch.setattr(TinyNet, "__module__", "theirs")
    assert structure(TinyNet()) != before


@pytest.mark.parametrize("theirs", ["not JSON", "[1, 2]", "{}"])
def test_constants_of_somebody_elses_making_are_not_ours(theirs, tmp_path):
    model = nn.Linear(2, 2)
    save_file(model.state_dict(), tmp_path / "theirs.safetensors", {"constants": theirs})
    check_constants(model, {"constants": theirs}, tmp_path / "theirs.safetensors")
    load_foreign(nn.Linear(2, 2), tmp_path / "theirs.safetensors")
