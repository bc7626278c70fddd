from __future__ import annotations

import json

import pytest

from gradpivot.sweep.store.records import Records


def test_keeps_and_gives_back(tmp_path):
    records = Records(tmp_path)
    assert records.get("a") is None
    records.put("a", {"x": 1.5, "none": None})
    assert Records(tmp_path).get("a") == {"x": 1.5, "none": None}


@pytest.mark.parametrize("damage", ["cut", "changed", "renamed", "empty"])
def test_damaged_records_are_named_and_not_trusted(tmp_path, damage):
    records = Records(tmp_path)
    records.put("a", {"x": 1})
    path = records.path("a")
    text = path.read_text()
    if damage == "cut":
        path.write_text(text[:-10])
    elif damage == "changed":
        path.write_text(text.replace('"x": 1', '"x": 2'))
    elif damage == "renamed":
        records.path("b").parent.mkdir()
        path.rename(records.path("b"))
        path = records.path("b")
    else:
        path.write_text("")
    assert records.get(path.stem) is None
    assert list(records.damaged) == [path]
    records.put(path.stem, {"x": 3})
    assert records.get(path.stem) == {"x": 3}
    assert json.loads(path.read_text())["key"] == path.stem
