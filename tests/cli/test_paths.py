"""Empty paths and ~ on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradpivot.cli import main
from gradpivot.cli.parser import parse

RUN = ["unlearn", "cup", "--classes", "3"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*RUN, "--out", ""], "--out is empty"),
        ([*RUN, "--out="], "--out is empty"),
        ([*RUN, "--weights", ""], "--weights is empty"),
        (["sweep", "digits", "--store", ""], "--store is empty"),
        (["report", ""], "an argument is empty"),
        (["store", "check", ""], "an argument is empty"),
        ([*RUN, "--config", "options.yaml"], "--out is empty"),
        ([*RUN, "--out", "~no_such_user/x"], "no home folder of ~no_such_user"),
    ],
)
def test_a_path_that_is_none(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("options.yaml").write_text('out: ""\n')
    assert main(words) == 1
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["options.yaml"]


def test_an_empty_text_is_no_path():
    assert parse(["sweep", "digits", "--without", ""]).without == ""
    assert parse(["data", "list", "--json"]).chosen.json


@pytest.mark.parametrize("out", [["--out", "~/x"], ["--out=~/x"]])
def test_home_is_the_users(out, monkeypatch, tmp_path):
    """Shells leave ~ alone in quotes and after an equals sign."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse([*RUN, *out]).out == tmp_path / "x"
    assert parse([*RUN, "--out", "x/~"]).out == Path("x/~")
    assert parse(["store", "check", "~/x"]).chosen.store == tmp_path / "x"
    assert parse(["judge", "--problem", "mnist-ddpm", "--weights", "~/a", "~/b"]).weights == (
        tmp_path / "a",
        tmp_path / "b",
    )
