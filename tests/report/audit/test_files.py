"""Audits written to a folder and read back."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gradpivot.errors import GradPivotError
from gradpivot.report.audit import files
from gradpivot.report.audit.files import read_audit, write_audit
from made_audit import made_attacks, made_audit


def test_an_audit_survives_the_round_trip(tmp_path: Path) -> None:
    record = made_audit()
    files = write_audit(record, tmp_path / "new")
    assert [path.name for path in files] == ["audit.json", "audit.html"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["audit.html", "audit.json"]
    assert read_audit(tmp_path / "new") == read_audit(files[0]) == record


def test_a_folder_with_the_json_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between the files left an audit without a page, which was not repeated."""
    monkeypatch.setattr(files, "render_audit", lambda _: pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception):
        write_audit(made_audit(), tmp_path)
    assert not (tmp_path / "audit.json").exists()


def test_the_same_audit_gives_the_same_bytes(tmp_path: Path) -> None:
    once, twice = (write_audit(made_audit(), tmp_path / name) for name in "ab")
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in twice]


def test_arrays_and_numbers_that_json_does_not_know(tmp_path: Path) -> None:
    odd = replace(made_attacks()[0], value=math.nan, error=math.inf, details={"all": np.arange(3), "n": np.int64(4)})
    data, _ = write_audit(made_audit(attacks=(odd,), sections={"x": [np.float32(0.5), math.nan]}), tmp_path)
    values = json.loads(data.read_text("utf-8"), parse_constant=lambda name: pytest.fail(name))
    assert values["sections"]["x"] == [0.5, None]
    (found,) = read_audit(data).attacks
    assert math.isnan(found.value)
    assert found.error is None
    assert found.details == {"all": [0, 1, 2], "n": 4}


def test_a_lone_surrogate_in_a_name_can_be_written(tmp_path: Path) -> None:
    write_audit(made_audit(problem={"name": "caf\udce9"}), tmp_path)
    assert read_audit(tmp_path).problem["name"] == "caf?"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no audit at"),
        ("{", "is not an audit, or is truncated"),
        ("[]", "is not an audit, or is truncated"),
        ('{"schema": "gradpivot.audit/1"}', "is not an audit, or is truncated"),
        ('{"schema": "gradpivot.audit/99"}', "this audit has schema 'gradpivot.audit/99'"),
    ],
)
def test_what_is_no_audit_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "audit.json").write_text(content)
    with pytest.raises(GradPivotError, match=message):
        read_audit(tmp_path)
