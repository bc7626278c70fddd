from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from pathlib import Path

import pytest

from gradpivot.data.download import cache as module
from gradpivot.data.download.cache import cached_content, cached_file, data_folder, locked, read_manifest, state_of
from gradpivot.data.download.getting import check, get
from gradpivot.data.readers.cifar10 import load_cifar10
from gradpivot.errors import GradPivotError
from made_data import cifar_binary, mat_files, put

DAMAGED = "the cached cifar10 is damaged; run 'gradpivot data get cifar10' to download it again"


@pytest.fixture
def filled(cifar, cache, tmp_path) -> Path:
    """The cache with CIFAR-10 in it; its file."""
    get("cifar10", given=put(tmp_path / "files", cifar_binary(cifar)))
    return cache / "cifar10" / "data.safetensors"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"GRADPIVOT_DATA": "/data/here", "XDG_CACHE_HOME": "/xdg"}, "/data/here"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/gradpivot"),
        ({"HOME": "/home/me"}, "/home/me/.cache/gradpivot"),
        ({"HOME": "/home/me", "GRADPIVOT_DATA": "~/data"}, "/home/me/data"),
    ],
)
def test_where_the_cache_is(variables, expected, monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("GRADPIVOT_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert data_folder() == Path(expected)


def test_a_whole_file_is_handed_out(filled, cache):
    assert cached_file("cifar10") == filled
    assert state_of("cifar10") == "here"
    with pytest.raises(GradPivotError, match=r"there is no dataset 'imagenet'\. Choose from cifar10, mnist"):
        cached_file("imagenet")


def test_the_manifest_says_where_it_came_from_and_names_no_machine(filled, tmp_path):
    text = (filled.parent / "manifest.json").read_text()
    told = json.loads(text)
    assert told["source"] == "the folder files"
    assert told["size"] == filled.stat().st_size
    assert told["schema"] == "gradpivot.data/1"
    assert "cited" in told["licence"]
    assert str(tmp_path) not in text


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def tamper(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def lose_manifest(path: Path) -> None:
    (path.parent / "manifest.json").unlink()


def break_manifest(path: Path) -> None:
    (path.parent / "manifest.json").write_text('{"schema": "gradpivot.data/1", "size"')


def age_manifest(path: Path) -> None:
    manifest = path.parent / "manifest.json"
    manifest.write_text(manifest.read_text().replace("gradpivot.data/1", "gradpivot.data/0"))


@pytest.mark.parametrize("damage", [cut, tamper, lose_manifest, break_manifest, age_manifest, Path.unlink])
def test_a_damaged_file_is_not_used(damage, filled):
    load_cifar10()
    damage(filled)
    with pytest.raises(GradPivotError) as error:
        load_cifar10()
    assert str(error.value) == DAMAGED
    with pytest.raises(GradPivotError):
        check("cifar10")


@pytest.mark.parametrize("lose", [lose_manifest, break_manifest])
def test_a_file_whose_manifest_is_lost_is_known_by_its_content(lose, filled):
    lose(filled)
    manifest, was_here = get("cifar10", "official")
    assert was_here
    assert manifest.source == "a file in the cache"
    check("cifar10")


@pytest.mark.parametrize("lose", [lose_manifest, break_manifest])
def test_a_lost_manifest_does_not_make_another_file_right(lose, filled):
    tamper(filled)
    lose(filled)
    with pytest.raises(GradPivotError, match="no official source"):
        get("cifar10", "official")


def test_weights_and_svhn_without_a_manifest(weights, svhn, cache, tmp_path):
    put(cache / "resnet18-cifar10", {"model_test.pt": weights})
    assert get("resnet18-cifar10", "official")[1]
    get("svhn", given=put(tmp_path / "files", mat_files(svhn)))
    lose_manifest(cache / "svhn" / "data.safetensors")
    # Nothing in the cached form shows that the images are those of the authors.
    assert not get("svhn", given=tmp_path / "files")[1]


@pytest.mark.parametrize("damage", [cut, tamper])
def test_a_damaged_file_is_got_again(damage, filled, tmp_path):
    before = filled.read_bytes()
    damage(filled)
    _, was_here = get("cifar10", given=tmp_path / "files")
    assert not was_here
    assert filled.read_bytes() == before
    check("cifar10")


def test_a_file_changed_together_with_its_manifest_fails_the_check(filled):
    before = module.digest_of(filled, "sha256")
    tamper(filled)
    manifest = filled.parent / "manifest.json"
    manifest.write_text(manifest.read_text().replace(before, module.digest_of(filled, "sha256")))
    assert cached_file("cifar10") == filled
    with pytest.raises(GradPivotError, match="is not the official file"):
        check("cifar10")


def test_weights_must_have_the_digest_of_the_catalogue(weights, cache, tmp_path):
    """Loading TorchScript can run code, so a manifest is not enough."""
    get("resnet18-cifar10", given=put(tmp_path, {"model_test.pt": weights}) / "model_test.pt")
    path = cached_file("resnet18-cifar10")
    before = module.digest_of(path, "sha256")
    tamper(path)
    manifest = path.parent / "manifest.json"
    manifest.write_text(manifest.read_text().replace(before, module.digest_of(path, "sha256")))
    with pytest.raises(GradPivotError, match="is damaged"):
        cached_file("resnet18-cifar10")


def test_the_digest_is_made_once_as_long_as_the_file_stays(filled, monkeypatch):
    cached_file("cifar10")
    made = []
    monkeypatch.setattr(module, "digest_of", lambda *given: made.append(given) or "other")
    cached_file("cifar10")
    assert not made
    filled.touch()
    with pytest.raises(GradPivotError):
        cached_file("cifar10")
    assert len(made) == 1


def test_states(cache):
    assert state_of("mnist") == "not here"
    assert read_manifest("mnist") is None
    put(cache / "mnist", {"data.safetensors": b""})
    assert state_of("mnist") == "damaged"


def test_one_at_a_time_in_a_folder(tmp_path):
    order, waited = [], threading.Event()

    def second() -> None:
        with locked(tmp_path / "x", waited.set):
            order.append("second")

    with locked(tmp_path / "x"):
        thread = threading.Thread(target=second)
        thread.start()
        assert waited.wait(10)
        time.sleep(0.05)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_a_cache_that_cannot_be_written_says_what_to_set(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRADPIVOT_DATA", str(tmp_path / "file"))
    with pytest.raises(GradPivotError, match=r"cannot write to .*; set GRADPIVOT_DATA to a writable folder"):
        get("cifar10", given=tmp_path)
    with pytest.raises(GradPivotError, match="there is no file or folder"):
        get("cifar10", given=tmp_path / "nothing")


def test_content_is_checked_as_it_was_read(filled, monkeypatch):
    assert cached_content("cifar10") == filled.read_bytes()
    monkeypatch.setattr(module, "cached_file", lambda name: filled)
    filled.write_bytes(filled.read_bytes()[:-1] + b"?")
    with pytest.raises(GradPivotError, match=re.escape(DAMAGED)):
        cached_content("cifar10")


def test_a_cache_whose_manifest_was_changed_with_it_is_compared_with_the_catalogue(filled):
    load_cifar10()
    content = filled.read_bytes()
    other = content[:-1] + bytes([content[-1] ^ 1])
    filled.write_bytes(other)
    manifest = filled.parent / "manifest.json"
    told = json.loads(manifest.read_text()) | {"sha256": hashlib.sha256(other).hexdigest()}
    manifest.write_text(json.dumps(told))
    with pytest.raises(GradPivotError, match=r"is not the official file.*gradpivot data get cifar10"):
        load_cifar10()
    assert state_of("cifar10") == "here"  # which looks at sizes only
