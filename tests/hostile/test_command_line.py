"""What a clumsy or hostile caller does to the command line: streams that are closed or know few characters, numbers
without bounds, private files.

A row says what is done and what must come of it.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gradpivot.cli import main
from gradpivot.sweep.cell import digest_of
from gradpivot.sweep.store.store import Store

TOY = "unlearn cup --problem toy --classes 1 --out out"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(folder, record) -> Path:
    """A store whose series has a name in Greek."""
    filled = Store(folder / "store", create=True)
    for role, scores in (("original", (1, 0, 1, 0.5)), ("retrained", (1, 1, 1, 1)), ("run", (0.99, 0.5, 0.9, 0.5))):
        one = record(role, scores, problem="größe", series="γ-CUP" if role == "run" else role.title())
        filled.put(replace(one, key=digest_of(role)))
    filled.close()
    return filled.folder


# Numbers without bounds: words, and what must be said.
NUMBERS = {
    "sweep digits --seeds 1000000000": "at most 1,000,000 fit",
    "sweep digits --classes 0-9999999999": "has more than 100,000 classes",
    f"sweep digits --classes {','.join(['0-99998'] * 1000)}": "has more than 100,000 classes",
    "sweep digits --seeds 1 --classes 0 --jobs 100000": "--jobs is 100000; give 1 to 1,024",
    "sweep digits --threads 100000": "--threads is 100000; give 1 to 1,024",
    f"{TOY} --threads 100000": "--threads is 100000; give 1 to 1,024",
    f"{TOY} --threads -1": "--threads is -1; give 1 to 1,024",
    "demo --threads 100000": "--threads is 100000; give 1 to 1,024",
    "trace cup --problem toy --classes 1 --threads 100000": "--threads is 100000; give 1 to 1,024",
}


@pytest.mark.parametrize("words", NUMBERS, ids=lambda words: words[:60])
def test_a_number_without_bounds_is_one_line_at_once(words, capsys, folder):
    assert main(shlex.split(words)) == 1
    error = capsys.readouterr().err
    assert error.startswith("gradpivot: ")
    assert error.count("\n") == 1
    assert len(error) < 500
    assert NUMBERS[words] in error
    assert not (folder / "out" / "metrics.json").exists()


# Streams that know few characters: every command that prints something else than ASCII.
COMMANDS = {
    "--help": 0,
    "methods": 0,
    "recipes": 0,
    "recipes digits": 0,
    "unlearn --help-all": 0,
    "audit --help": 0,
    "data list": 0,
    "compare store": 0,
    "compare store --methods Δ": 1,
    "unlearn --classes é": 1,
    "unlärn": 2,
}


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
@pytest.mark.parametrize("words", COMMANDS)
def test_any_encoding_will_do(words, encoding, store, monkeypatch):
    out, error = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", error)
    try:
        status = main(shlex.split(words))
    except SystemExit as stop:
        status = int(stop.code or 0)
    assert status == COMMANDS[words]
    printed, said = (stream.buffer.getvalue().decode(encoding) for stream in flushed(out, error))
    assert (printed if status == 0 else said).strip()
    assert "Traceback" not in said


def flushed(*streams: io.TextIOWrapper) -> tuple[io.TextIOWrapper, ...]:
    for stream in streams:
        stream.flush()
    return streams


def test_json_stays_the_same_in_any_encoding(store, monkeypatch):
    found = []
    for encoding in ("utf-8", "ascii"):
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", out)
        assert main(["compare", str(store), "--json"]) == 0
        out.flush()
        found.append(json.loads(out.buffer.getvalue()))
    assert found[0] == found[1]
    assert found[0]["tables"][0]["problem"] == "größe"


# Streams that are closed: redirections of a shell, and the status.
CLOSED = {
    "methods 2>&-": 0,
    "methods >&-": 0,
    "methods >&- 2>&- <&-": 0,
    "unlern 2>&-": 2,
    "store check store 2>&- <&-": 0,
}


@pytest.mark.parametrize("words", CLOSED)
def test_a_closed_stream_is_no_reason_to_fail(words, store):
    done = subprocess.run(
        ["sh", "-c", f"{shlex.quote(sys.executable)} -m gradpivot {words}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == CLOSED[words]
    assert done.stderr == ""
    assert bool(done.stdout) == (">&-" not in words.replace("2>&-", "") and done.returncode == 0)


@pytest.mark.parametrize("where", ["a reader that is gone", "/dev/full"])
def test_progress_that_nobody_can_read_does_not_end_a_run(where):
    if where == "/dev/full" and not Path(where).exists():
        pytest.skip("only Linux has it")
    if where == "/dev/full":
        writing = os.open(where, os.O_WRONLY)
    else:
        reading, writing = os.pipe()
        os.close(reading)
    code = (
        "import sys; from gradpivot.cli.streams import prepare_streams; prepare_streams()\n"
        "for _ in range(3): sys.stderr.write('x' * 100_000 + '\\n')\n"
        "print('done')"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writing, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stdout) == (0, "done\n")


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644)])
def test_the_umask_decides_who_may_read_a_run(mask, mode, folder):
    before = os.umask(mask)
    try:
        assert main(shlex.split(TOY)) == 0
        filled = Store(folder / "store", create=True)
        filled.put_original("k", b"weights")
        filled.close()
    finally:
        os.umask(before)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"metrics.json", "model.safetensors", "store.json", "index.sqlite"}
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode) | mode) for path in files} == {
        path.name: oct(mode) for path in files
    }


def test_a_run_of_others_cannot_replace_ones_own(folder, capsys):
    """rerun takes the settings that determine a run from its folder, and nothing else."""
    assert main(shlex.split(TOY)) == 0
    with (folder / "out" / "config.yaml").open("a") as file:
        file.write("overwrite: true\n")
    assert main(shlex.split(f"{TOY} --epochs 1".replace("--out out", "--out mine"))) == 0
    before = {path.name: path.read_bytes() for path in (folder / "mine").iterdir() if path.is_file()}
    assert main(["rerun", "out", "--out", "mine"]) == 1
    assert "mine already holds a finished run with other settings" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (folder / "mine").iterdir() if path.is_file()} == before
