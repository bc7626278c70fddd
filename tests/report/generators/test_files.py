"""Comparisons of generators written to a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gradpivot.errors import GradPivotError
from gradpivot.report.generators.files import GENERATORS, write_generators
from gradpivot.results.generator_tables import compare_generators
from made_generators import made_sweep


def test_every_format_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = write_generators(made_sweep(), tmp_path / "new", title="Ours")
    names = [path.relative_to(tmp_path / "new").as_posix() for path in files]
    assert names == [
        "generators.md", "generators.tex", "generators.csv", "generators.json", "generators.html",
        "figures/toy-ddpm-class-3-clean-protocol-samples.png",
        "figures/toy-ddpm-class-3-clean-protocol-samples-others.png",
    ]  # fmt: skip
    assert all(path.stat().st_size > 100 for path in files)
    assert files[2].read_bytes().startswith(b"\xef\xbb\xbfproblem,")
    assert "<h1>Ours</h1>" in files[4].read_text(encoding="utf-8")


def test_only_what_was_asked_for_and_from_a_comparison_too(tmp_path: Path) -> None:
    (file,) = write_generators(compare_generators(made_sweep()), tmp_path, ["json"])
    assert [path.name for path in tmp_path.iterdir()] == [file.name] == ["generators.json"]


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_generators(made_sweep(), tmp_path / name, [f for f in GENERATORS.formats if f != "figures"])
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_an_unknown_format_and_a_mix_of_records_are_refused(tmp_path: Path, record: Any) -> None:
    with pytest.raises(GradPivotError, match="cannot write generators as 'pdf'"):
        write_generators(made_sweep(), tmp_path, ["pdf"])
    with pytest.raises(GradPivotError, match="compare one problem at a time"):
        write_generators([*made_sweep(), record()], tmp_path)
    assert not list(tmp_path.iterdir())
