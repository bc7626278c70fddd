from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradpivot.runtime import atomic, create_text, remove_stale, write_text

WRITER = """
import os, sys
from gradpivot.runtime import replacing
with replacing(sys.argv[1]) as draft:
    draft.write_text("half")
    print(draft, flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.slow
def test_what_a_killed_process_left_is_removed_and_a_living_ones_is_kept(tmp_path):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "a.json")],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]  # fmt: skip
    dead, living = (Path(writer.stdout.readline().strip()) for writer in writers)
    writers[0].kill()
    writers[0].wait()
    assert {dead.name, living.name} == names(tmp_path)
    write_text(tmp_path / "b.json", "{}")
    assert names(tmp_path) == {living.name, "b.json"}
    writers[1].communicate()
    assert (tmp_path / "a.json").read_text() == "half"


@pytest.mark.parametrize("name", [".a.json.12345678", ".lock", "a.tmp", ".mine.tmp", ".a.b-1-2.abcdefgh.tmp"])
def test_files_of_others_are_kept(tmp_path, name):
    (tmp_path / name).write_text("")
    os.utime(tmp_path / name, (0, 0))
    remove_stale(tmp_path)
    assert names(tmp_path) == {name}


def test_a_file_of_another_machine_is_stale_after_a_day(tmp_path):
    file = tmp_path / ".a.json.0123abcd-1-1.abcdefgh.tmp"
    file.write_text("")
    remove_stale(tmp_path)
    assert file.exists()
    os.utime(file, (time.time() - atomic._MAX_AGE - 1,) * 2)
    remove_stale(tmp_path)
    assert not file.exists()


def test_a_folder_that_does_not_exist_has_no_stale_files(tmp_path):
    remove_stale(tmp_path / "none")


def test_the_first_creator_wins(tmp_path):
    create_text(tmp_path / "a", "first")
    create_text(tmp_path / "a", "second")
    assert (tmp_path / "a").read_text() == "first"
    assert names(tmp_path) == {"a"}
