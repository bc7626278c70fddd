from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from filelock import FileLock

from gradpivot.errors import GradPivotError
from gradpivot.runtime import exclusive

HOLDER = """
import sys
from pathlib import Path
from gradpivot.runtime import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_is_refused_and_learns_who_holds_it(tmp_path):
    with exclusive(tmp_path / "run"):
        with pytest.raises(GradPivotError) as refused, exclusive(tmp_path / "run"):
            pass
        with exclusive(tmp_path / "other"):
            pass
    assert re.search(
        rf"run is in use by process {os.getpid()} on \S+ since \d{{4}}-\d\d-\d\d \d\d:", str(refused.value)
    )
    assert "--out" in str(refused.value)
    with exclusive(tmp_path / "run"):
        (tmp_path / "run" / "result").touch()
    assert {path.name for path in (tmp_path / "run").iterdir()} == {".lock", "result"}


def test_a_folder_in_which_nothing_was_written_is_not_left(tmp_path):
    with exclusive(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with exclusive(tmp_path / "mine"):
        pass
    assert (tmp_path / "mine").is_dir()


def test_a_folder_that_its_last_holder_removes_meanwhile_is_made_again(tmp_path, monkeypatch):
    acquire = FileLock.acquire

    def removed_first(lock, **_):
        monkeypatch.setattr(FileLock, "acquire", acquire)
        (tmp_path / "a" / "run").rmdir()
        (tmp_path / "a").rmdir()
        raise FileNotFoundError(2, "No such file or directory", lock.lock_file)

    monkeypatch.setattr(FileLock, "acquire", removed_first)
    with exclusive(tmp_path / "a" / "run"):
        (tmp_path / "a" / "run" / "result").touch()
    assert (tmp_path / "a" / "run" / "result").exists()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path, monkeypatch):
    def gone(*_, **__):
        raise FileNotFoundError(2, "No such file or directory", "run")

    monkeypatch.setattr(FileLock, "acquire", gone)
    with pytest.raises(FileNotFoundError), exclusive(tmp_path / "run"):
        pass


@pytest.mark.slow
def test_the_lock_of_a_killed_process_is_free(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(GradPivotError, match=f"process {holder.pid} on"), exclusive(tmp_path):
        pass
    holder.kill()
    holder.wait()
    with exclusive(tmp_path):
        pass
