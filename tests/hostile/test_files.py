"""Files from others, damaged or made to harm: one line that names the file, at once, and nothing is lost.

A row says which files there are, what is run in their folder, and what must be said. Every file must still be
as it was.
"""

from __future__ import annotations

import json
import re
import shlex
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradpivot.cli import main
from gradpivot.sweep.cell import digest_of
from gradpivot.sweep.store.records import seal
from gradpivot.sweep.store.store import Store

DEEP = "[" * 100_000
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
RECIPE = """\
schema: gradpivot.recipe/1
title: a recipe
problem: toy
forget: [{classes: 0}]
seeds: 1
protocols: {clean: {series: {GA: {method: ga, lr: [1e-4]}}}}
"""
SPLIT = {"schema": "gradpivot.split/1", "forget_indices": [0], "kind": "index", "classes": [], "seed": None}
SPLIT |= {"hash": "0", "validation": "none", "data": "0"}
EXPECTED_LIMIT = "more than 100,000 values"


def weights(**metadata: str) -> bytes:
    """A safetensors file without tensors."""
    header = json.dumps({"__metadata__": metadata}).encode()
    return struct.pack("<Q", len(header)) + header


def metrics(**changes: Any) -> str:
    found = {"schema": "gradpivot.run/1", "scores": {}, "diverged": None, "label": "CUP(gamma=1)", "original": {}}
    return json.dumps(found | {"provenance": {"split": {"kind": "class", "classes": [3]}}, "seconds": 1} | changes)


TOY = "unlearn cup --problem toy --classes 1 --out out"
EARLIER = f"{TOY} --weights s.json --already-forgotten"
ROWS: dict[str, tuple[dict[str, str | bytes], str, str]] = {
    # Recipes
    "a recipe of aliases of aliases": ({"r.yaml": BOMB}, "recipes r.yaml", EXPECTED_LIMIT),
    "a recipe of merges of merges": ({"r.yaml": MERGES}, "recipes r.yaml", EXPECTED_LIMIT),
    "a recipe inside itself": ({"r.yaml": "a: &a [*a]"}, "recipes r.yaml", "stands inside its own anchor"),
    "a recipe that extends itself": ({"r.yaml": "extends: r.yaml"}, "recipes r.yaml", "extends itself"),
    "a recipe nested 100,000 deep": ({"r.yaml": DEEP}, "recipes r.yaml", "more than 100 levels"),
    "a recipe of 2 MB": ({"r.yaml": "#" * 2_000_000}, "recipes r.yaml", "at most 1,000,000 are read"),
    "a recipe with an impossible date": ({"r.yaml": "seeds: 2001-99-99"}, "recipes r.yaml", "month must be in"),
    "a recipe with a number of 5,000 digits": ({"r.yaml": f"seeds: {'9' * 5000}"}, "recipes r.yaml", "not valid YAML"),
    "a recipe with a Python tag": ({"r.yaml": "!!python/object/apply:os.abort []"}, "recipes r.yaml", "constructor"),
    "a recipe of a billion seeds": (
        {"r.yaml": RECIPE.replace("seeds: 1", "seeds: 1000000000")}, "recipes r.yaml", "at most 1,000,000 fit",
    ),
    "a recipe of a billion settings": (
        {"r.yaml": RECIPE.replace("[1e-4]", "{from: 1, to: 2, count: 1000000000}")}, "recipes r.yaml", "a range is",
    ),
    "a recipe in another encoding": ({"r.yaml": "title: é".encode("cp1252")}, "recipes r.yaml", "not UTF-8"),
    # Options
    "options of aliases of aliases": ({"o.yaml": BOMB}, f"{TOY} --config o.yaml", EXPECTED_LIMIT),
    "options nested 100,000 deep": ({"o.yaml": DEEP}, f"{TOY} --config o.yaml", "more than 100 levels"),
    "options that are binary": ({"o.yaml": b"\xff\xfe\x00"}, f"{TOY} --config o.yaml", "not text in UTF-8"),
    "options with 100,000 threads": ({"o.yaml": "threads: 100000"}, f"{TOY} --config o.yaml", "give 1 to 1,024"),
    # Run folders
    "a run with settings in another encoding": (
        {"run/config.yaml": b"problem: \xe9", "run/metrics.json": "{}"}, "rerun run", r"run/config.yaml is damaged",
    ),
    "a run with settings of aliases": (
        {"run/config.yaml": BOMB, "run/metrics.json": "{}"}, "rerun run", r"run/config.yaml is damaged",
    ),
    "a run with deep scores": ({"run/metrics.json": DEEP}, "report run", r"run/metrics.json is damaged"),
    "a run without a split": (
        {"run/config.yaml": "problem: toy", "run/metrics.json": metrics(provenance={})}, "report run", "is damaged",
    ),
    "a run whose settings are no method": (
        {"run/config.yaml": "problem: toy", "run/metrics.json": metrics()}, "report run", "is damaged",
    ),
    "a run that diverged in no way": (
        {"run/config.yaml": "{problem: toy, method: cup}", "run/metrics.json": metrics(diverged="x")},
        "report run", "'x' instead of a mapping",
    ),
    "an audited run whose settings are a list": (
        {"run/config.yaml": "problem: toy", "run/metrics.json": metrics(provenance={"method": []})},
        "audit run", r"run/metrics.json is damaged \(method is \[\]",
    ),
    "a run whose split is a list": (
        {"run/config.yaml": "{problem: toy, indices: i}", "run/metrics.json": metrics(), "run/split.json": "[]"},
        "rerun run", r"run/split.json is damaged",
    ),
    # Results
    "results nested 100,000 deep": ({"results.json": DEEP}, "report results.json", "is not a results file"),
    "an audit nested 100,000 deep": ({"audit.json": DEEP}, "report audit.json", "is not an audit"),
    "an export nested 100,000 deep": (
        {"x.jsonl": '{"key": "0", "sha256": "0", "record": ' + DEEP}, "store import new x.jsonl", "line 1 is not",
    ),
    # Splits and weights
    "a split nested 100,000 deep": (
        {"s.json": DEEP}, f"{EARLIER} s.json", "s.json is damaged or not a split file",
    ),
    "a split with indices of indices": (
        {"s.json": json.dumps(SPLIT | {"forget_indices": [[0]]})}, f"{EARLIER} s.json", "is damaged",
    ),
    "a split of classes that are none": (
        {"s.json": json.dumps(SPLIT | {"classes": [None]})}, f"{EARLIER} s.json", "is damaged",
    ),
    "weights with broken constants": (
        {"w.safetensors": weights(gradpivot="{}", constants="{")}, f"{TOY} --weights w.safetensors", "header",
    ),
    "weights with constants that are a list": (
        {"w.safetensors": weights(gradpivot="{}", constants="[1]")}, f"{TOY} --weights w.safetensors", "not a mapping",
    ),
    "weights with deep constants": (
        {"w.safetensors": weights(gradpivot="{}", constants=DEEP)}, f"{TOY} --weights w.safetensors", "100 levels",
    ),
    # Stores
    "a store described 100,000 deep": ({"s/store.json": DEEP}, "compare s", "delete this file only"),
}  # fmt: skip


@pytest.mark.parametrize("what", ROWS)
def test_a_bad_file_is_one_line(what, tmp_path, monkeypatch, capsys):
    files, command, said = ROWS[what]
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(shlex.split(command)) == 1
    error = capsys.readouterr().err
    assert error.startswith("gradpivot: ")
    assert error.count("\n") == 1
    assert len(error) < 2000
    assert re.search(said, error)
    for name, content in files.items():
        assert Path(name).read_bytes() == (content if isinstance(content, bytes) else content.encode())


# Records of finished runs, sealed with a right checksum: what is changed in a sound one, and what must be said of it.
DROP = object()
RECORDS: dict[str, tuple[dict[str, Any], str]] = {
    "without a score": ({"point.scores.ua": DROP}, "ua is missing"),
    "with text for a score": ({"point.scores.ua": "high"}, "ua is 'high'"),
    "with a score of NaN": ({"point.scores.ua": float("nan")}, "ua is nan"),
    "with a score in percent": ({"point.scores.ua": 95.0}, "between 0 and 1"),
    "with a count of text": ({"point.scores.n_forget": "many"}, "n_forget is 'many'"),
    "without scores": ({"point.scores": DROP}, "scores is missing"),
    "with infinite time": ({"point.seconds": float("inf")}, "seconds is inf"),
    "with a time of 400 digits": ({"point.seconds": 10**400}, "seconds is 1000"),
    "with a knob of text": ({"point.knob": "a"}, "knob is 'a'"),
    "with settings that are a list": ({"point.settings": []}, "settings is"),
    "that diverged in no way": ({"point.diverged": {}}, "step is missing"),
    "of a newer version": ({"schema": "gradpivot.record/2"}, "this version reads 'gradpivot.record/1'"),
    "of no version": ({"schema": DROP}, "schema is missing"),
    "with a seed of text": ({"seed": "x"}, "seed is 'x'"),
    "of an unknown role": ({"role": "king"}, "role is 'king'"),
    "under another key": ({"key": "0" * 20}, "another run"),
    "with a path as its key": ({"key": "../../x"}, "another run"),
    "with a cell of text": ({"provenance": {"cell": "x"}}, "cell is 'x'"),
    "with a setting of numbers": ({"provenance": {"setting_key": [1]}}, "setting_key is"),
    "with pictures of text": ({"pictures": "x"}, "instead of a mapping"),
    "with margins of text": ({"margins": ["x"]}, "could not convert"),
}


def changed(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The values with others at these paths."""
    found = json.loads(json.dumps(values))
    for path, value in changes.items():
        *outer, last = path.split(".")
        inner = found
        for name in outer:
            inner = inner[name]
        inner.pop(last) if value is DROP else inner.update({last: value})
    return found


@pytest.fixture
def store(tmp_path, record) -> Store:
    """Three sound runs."""
    filled = Store(tmp_path / "store", create=True)
    for role, scores in (("original", (1, 0, 1, 0.5)), ("retrained", (1, 1, 1, 1)), ("run", (0.99, 0.5, 0.9, 0.5))):
        one = record(role, scores)
        filled.put(replace(one, key=digest_of(role)))
    return filled


def put(store: Store, content: str | bytes) -> Path:
    path = store.folder / "runs" / digest_of("bad")[:2] / f"{digest_of('bad')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def check_left_out(store: Store, path: Path, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    for words in (["compare", str(store.folder)], ["store", "check", str(store.folder)]):
        assert main(words) == 1
        out, error = capsys.readouterr()
        assert path.name in error
        assert said in error
        assert error.count("\n") == 1
        assert ("99.00" in out) == (words[0] == "compare")  # the table with the other runs
    assert main(["store", "export", str(store.folder), str(store.folder / "x.jsonl")]) == 1
    assert path.name in capsys.readouterr().err
    assert len((store.folder / "x.jsonl").read_text().splitlines()) == 3
    assert Store(store.folder).done([path.stem]) == {}
    assert path.read_bytes() == before


@pytest.mark.parametrize("what", RECORDS)
def test_a_bad_record_is_named_and_left_out(what, store, record, capsys):
    changes, said = RECORDS[what]
    bad = changed(replace(record("run", (1, 1, 1, 1)), key=digest_of("bad")).to_dict(), changes)
    check_left_out(store, put(store, json.dumps(seal(digest_of("bad"), bad))), said, capsys)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (DEEP, "100 levels"),
        (b"\xff\xfe", "UnicodeDecodeError"),
        ("", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"key": 1}', "wrong key"),
        ("null", "TypeError"),
        (json.dumps(seal(digest_of("bad"), [1])), "instead of a mapping"),
    ],
    ids=["deep", "binary", "empty", "a list", "a number as key", "null", "a sealed list"],
)
def test_a_file_that_is_no_record_is_named_and_left_out(content, said, store, capsys):
    check_left_out(store, put(store, content), said, capsys)


def test_a_record_that_cannot_be_opened_is_named_and_left_out(store, capsys):
    """Another user's, on a broken disk, or a link to itself, which stands for both: tests may run as root."""
    path = put(store, "")
    path.unlink()
    path.symlink_to(path.name)
    for words in (["compare"], ["store", "check"]):
        assert main([*words, str(store.folder)]) == 1
        assert f"{path.name} (OSError: " in capsys.readouterr().err


def test_a_record_in_the_wrong_folder_is_named(store, capsys):
    wrong = store.folder / "runs" / "zz" / f"{digest_of('run')}.json"
    wrong.parent.mkdir()
    wrong.write_text("{}")
    assert main(["store", "check", str(store.folder)]) == 1
    assert f"1 of 4 files are damaged: {wrong.name} (in the wrong folder)" in capsys.readouterr().err


def test_a_store_of_damaged_records_only_says_so(tmp_path, capsys):
    empty = Store(tmp_path / "store", create=True)
    path = put(empty, "")
    assert main(["compare", str(empty.folder)]) == 1
    assert f"no finished run to compare (1 are damaged, such as {path.name}" in capsys.readouterr().err


def test_a_record_of_a_newer_version_is_kept_when_its_run_is_repeated(store, record):
    run = replace(record("run", (1, 1, 1, 1)), key=digest_of("bad"))
    newer = json.dumps(seal(run.key, run.to_dict() | {"schema": "gradpivot.record/2"}))
    path = put(store, newer)
    assert store.done([run.key]) == {}
    store.put(run)
    assert Store(store.folder).get(run.key) == run
    assert path.with_suffix(".damaged").read_text() == newer


def test_a_checksum_that_cannot_be_read_is_named(store, capsys):
    store.put_original("k", b"weights")
    seal_of = store.original_path("k").with_suffix(".sha256")
    seal_of.unlink()
    seal_of.mkdir()
    assert main(["store", "check", str(store.folder)]) == 1
    assert "k.safetensors (its checksum cannot be read: IsADirectoryError" in capsys.readouterr().err
