from __future__ import annotations

import argparse
import pickle
import struct
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from gradpivot.errors import GradPivotError
from gradpivot.models.checkpoints.foreign import load_foreign, read_tensors
from gradpivot.models.checkpoints.weights import save_weights
from gradpivot.models.pixels import OnPixels, Pixels
from gradpivot.models.resnet import BasicBlock


class Net(nn.Module):
    """Small, with the names of a ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3)
        self.layer1 = nn.Sequential(BasicBlock(4, 8, 2))
        self.linear = nn.Linear(8, 5)


def filled(seed: int = 1) -> dict[str, torch.Tensor]:
    """A state that no initialisation gives."""
    generator = torch.Generator().manual_seed(seed)
    return {
        key: torch.randn(value.shape, generator=generator) if value.is_floating_point() else value + 7
        for key, value in Net().state_dict().items()
    }


def renamed(old: str, new: str) -> dict[str, torch.Tensor]:
    return {key.replace(old, new): value for key, value in filled().items()}


def prefixed(prefix: str) -> dict[str, torch.Tensor]:
    return {prefix + key: value for key, value in filled().items()}


def same(model: nn.Module, prefix: str = "") -> bool:
    return all(torch.equal(model.state_dict()[prefix + key], value) for key, value in filled().items())


@pytest.mark.parametrize("ending", ["pt", "pth", "bin", "ckpt", "safetensors", "anything"])
def test_every_kind_of_file(tmp_path, ending):
    path = tmp_path / f"w.{ending}"
    save_file(filled(), path) if ending == "safetensors" else torch.save(filled(), path)
    model = Net()
    loaded = load_foreign(model, path)
    assert same(model)
    assert (loaded.notes, loaded.tensors) == ((), len(filled()))
    assert str(loaded) == f"{len(filled())} tensors from w.{ending}: keys match"


def test_files_of_before_torch_1_6_and_our_own(tmp_path):
    torch.save(filled(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    first, second = Net(), Net()
    load_foreign(first, tmp_path / "old.pt")
    assert same(first)
    save_weights(first, tmp_path / "own.safetensors", {"seed": 1})
    load_foreign(second, tmp_path / "own.safetensors")
    assert same(second)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (lambda: {"state_dict": filled(), "epoch": 3, "best": torch.tensor(0.9)}, "taken from 'state_dict'"),
        (lambda: {"net": filled(), "acc": 94.2, "epoch": 200}, "taken from 'net'"),
        (
            lambda: {"ema": filled(2), "model": filled(), "optimizer": {"state": {0: {"m": torch.ones(2)}}}},
            "taken from 'model' ('ema' left aside)",
        ),
        (lambda: {"model": {"state_dict": filled()}}, "taken from 'model'; taken from 'state_dict'"),
        (lambda: {"my_net": filled(), "optimizer_state": {"m": torch.ones(2)}}, "taken from 'my_net'"),
        (lambda: {"state_dict": prefixed("model.")}, "taken from 'state_dict'; without 'model.' in front"),
        (lambda: prefixed("module."), "without 'module'"),
        (lambda: prefixed("_orig_mod.module."), "without '_orig_mod' and 'module'"),
        (lambda: filled() | {"epoch": 3, 5: "five"}, "keys match"),
    ],
)
def test_containers_and_wrappers(tmp_path, content, told):
    torch.save(content(), tmp_path / "w.pt")
    model = Net()
    loaded = load_foreign(model, tmp_path / "w.pt")
    assert same(model)
    assert str(loaded) == f"{len(filled())} tensors from w.pt: {told}"


def test_a_real_wrapper(tmp_path):
    wrapped = nn.DataParallel(Net())
    wrapped.module.load_state_dict(filled())
    torch.save({"state_dict": wrapped.state_dict()}, tmp_path / "w.pt")
    model = Net()
    load_foreign(model, tmp_path / "w.pt")
    assert same(model)


def test_into_a_model_behind_pixels(tmp_path):
    torch.save(filled(), tmp_path / "w.pt")
    model = OnPixels(Pixels(), Net())
    assert load_foreign(model, tmp_path / "w.pt").notes == ("under 'model.'",)
    assert same(model, "model.")


def test_other_peoples_names(tmp_path):
    state = {k.replace("linear", "fc").replace("shortcut", "downsample"): v for k, v in filled().items()}
    torch.save(state, tmp_path / "w.pt")
    model = Net()
    load_foreign(model, tmp_path / "w.pt")
    assert same(model)
    torch.save({**renamed("conv1", "stem"), "aux.weight": torch.ones(2)}, tmp_path / "w.pt")
    with pytest.raises(GradPivotError, match="does not fit"):
        load_foreign(Net(), tmp_path / "w.pt")
    model = Net()
    loaded = load_foreign(model, tmp_path / "w.pt", ["stem=conv1", "aux=-"])
    assert same(model)
    assert loaded.notes == ("renamed by stem=conv1, aux=-",)


def test_old_files_have_no_batch_counters_and_half_precision_is_widened(tmp_path):
    state = {key: value.half() for key, value in filled().items() if "num_batches" not in key}
    torch.save(state, tmp_path / "w.pt")
    model = Net()
    load_foreign(model, tmp_path / "w.pt")
    assert all(torch.equal(model.state_dict()[key], value.float()) for key, value in state.items())
    assert model.layer1[0].bn1.num_batches_tracked == 0


def test_tied_weights_need_one_name(tmp_path):
    def tied() -> nn.Sequential:
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        net[1].weight = net[0].weight
        return net

    state = tied().state_dict()
    torch.save({key: value for key, value in state.items() if key != "1.weight"}, tmp_path / "w.pt")
    model = tied()
    load_foreign(model, tmp_path / "w.pt")
    assert torch.equal(model[1].weight, state["0.weight"])
    untied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    with pytest.raises(GradPivotError, match=r"1 missing \(1.weight \(3, 3\)\)"):
        load_foreign(untied, tmp_path / "w.pt")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            lambda: {k: v for k, v in filled().items() if "conv1.weight" not in k},
            r"2 missing \(conv1.weight \(4, 3, 3, 3\), .*--map 'old=new'",
        ),
        (lambda: filled() | {"extra.weight": torch.ones(2)}, r"1 unexpected \(extra.weight \(2,\)\)"),
        (
            lambda: filled() | {"linear.weight": torch.ones(100, 8)},
            r"linear.weight is \(100, 8\) in the file and \(5, 8\) in the model",
        ),
        (lambda: filled() | {"linear.bias": torch.ones(5, dtype=torch.int8)}, "linear.bias is torch.int8"),
        (lambda: {"a": filled(), "b": filled()}, "several sets of weights"),
        (lambda: {"epoch": 3, "optimizer": {"m": torch.ones(2)}}, r"holds no weights \(epoch, optimizer\)"),
        (dict, r"holds no weights \(empty\)"),
        (lambda: [torch.ones(2)], "holds a list"),
        (lambda: torch.ones(2), "holds a Tensor"),
    ],
)
def test_what_does_not_fit_is_one_line_and_changes_nothing(tmp_path, state, message):
    torch.save(state(), tmp_path / "w.pt")
    model = Net()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(GradPivotError, match=message) as caught:
        load_foreign(model, tmp_path / "w.pt")
    assert "\n" not in str(caught.value)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


class Loot:
    def __reduce__(self):
        return (print, ("code ran",))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (Net, "Net"),
        (lambda: {"state_dict": filled(), "args": argparse.Namespace(lr=0.1)}, "argparse.Namespace"),
        (lambda: {"state_dict": filled(), "best": np.float64(0.9)}, "scalar"),
        (Loot, "print"),
    ],
)
def test_objects_are_refused_with_the_way_out(tmp_path, content, named, capsys):
    torch.save(content(), tmp_path / "w.pt")
    with pytest.raises(GradPivotError, match=rf"{named}.*could run code.*model.state_dict\(\)") as caught:
        load_foreign(Net(), tmp_path / "w.pt")
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


def test_a_bare_pickle_is_not_run(tmp_path, capsys):
    (tmp_path / "w.pkl").write_bytes(pickle.dumps(Loot()))
    with pytest.raises(GradPivotError):
        load_foreign(Net(), tmp_path / "w.pkl")
    assert capsys.readouterr().out == ""


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    """One bit of a weight: torch itself would load this without a word."""
    at = content.find(filled()["conv1.weight"].numpy().tobytes())
    assert at > 0
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("kind", "damage"),
    [("zip", cut), ("zip", flipped), ("old", cut), ("safetensors", cut), ("safetensors", lambda c: c[:20])],
)
def test_damaged_files(tmp_path, kind, damage):
    path = tmp_path / "w"
    if kind == "safetensors":
        save_file(filled(), path)
    else:
        torch.save(filled(), path, _use_new_zipfile_serialization=kind == "zip")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(GradPivotError, match=r"damaged.*download it again") as caught:
        load_foreign(Net(), path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged or not a weights file"),
        (b"<!DOCTYPE html><html>not found", "damaged or not a weights file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"\x80\x02junkjunk", "damaged"),
        (b"PK\x03\x04junk", "damaged"),
        (struct.pack("<Q", 2**62) + b"{}", "damaged"),
    ],
)
def test_what_is_no_weights_file(tmp_path, content, message):
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(GradPivotError, match=message):
        read_tensors(tmp_path / "w.pt")


def test_what_is_not_there_or_a_folder(tmp_path):
    with pytest.raises(GradPivotError, match="there is no weights file"):
        read_tensors(tmp_path / "none.pt")
    with pytest.raises(GradPivotError, match="is a folder"):
        read_tensors(tmp_path)


def test_a_bomb_is_not_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "w.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w/data/0", bytes(10_000_000))
    with pytest.raises(GradPivotError, match="compressed archive"):
        read_tensors(tmp_path / "w.pt")


@pytest.mark.filterwarnings("error")
def test_programs_are_no_weights(tmp_path):
    with zipfile.ZipFile(tmp_path / "w.pt", "w") as archive:
        archive.writestr("w/constants.pkl", b"")
    with pytest.raises(GradPivotError, match="TorchScript program"):
        read_tensors(tmp_path / "w.pt")


def test_a_dictionary_within_itself_ends(tmp_path):
    content: dict[str, object] = {"epoch": 1}
    content["model"] = content
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(GradPivotError, match="holds"):
        read_tensors(tmp_path / "w.pt")
    content["x"] = {"y": torch.ones(1)}
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(GradPivotError, match="holds"):
        read_tensors(tmp_path / "w.pt")


@pytest.mark.parametrize("kind", ["sparse", "meta"])
def test_weights_that_are_no_dense_numbers(tmp_path, kind):
    model = nn.Linear(3, 2)
    state = {name: t.to_sparse() if kind == "sparse" else t.to("meta") for name, t in model.state_dict().items()}
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(GradPivotError) as error:
        load_foreign(model, tmp_path / "w.pt")
    assert "\n" not in str(error.value)
