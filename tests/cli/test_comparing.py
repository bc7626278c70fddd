"""The command compare, on stores of made runs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from gradpivot.cli import main
from gradpivot.sweep.cell import digest_of
from gradpivot.sweep.store.store import Store


@pytest.fixture
def store(tmp_path, record):
    """Two methods, two classes, two seeds, with their references."""
    folder = tmp_path / "store"
    filled = Store(folder, create=True)
    for forget in ("3", "5"):
        for seed in (0, 1):
            place = {"forget": forget, "seed": seed}
            made = [
                record("original", (1, 0, 0.98, 0.5), **place),
                record("retrained", (1, 1, 0.98, 1), **place),
                record("run", (0.99, 1, 0.97, 1), series="CUP", method="cup", **place),
                record("run", (0.9, 0.8, 0.9, 0.9), series="WS", method="ws", **place),
                record("run", None, series="WS", method="ws", label="WS lost", **place),
            ]
            for one in made:
                filled.put(replace(one, key=digest_of(one.key)))
    filled.close()
    return folder


def test_prints_tables_and_who_leads(store, capsys):
    assert main(["compare", str(store)]) == 0
    told = capsys.readouterr().out
    assert "digits, class-wise, clean protocol" in told
    assert "H: CUP leads" in told


def test_json_is_for_scripts(store, capsys):
    assert main(["compare", str(store), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "gradpivot.standings/1"
    assert [row["name"] for row in told["tables"][0]["rows"]] == ["Original", "Retrain", "WS", "CUP"]


def test_writes_the_formats_that_are_asked_for(store, tmp_path, capsys):
    out = tmp_path / "tables"
    assert main(["compare", str(store), "--out", str(out), "--formats", "markdown,latex,csv,html"]) == 0
    assert {path.suffix for path in out.iterdir() if path.suffix} == {".md", ".tex", ".csv", ".html"}
    assert main(["compare", str(store), "--out", str(out), "--formats", "word"]) == 1
    assert "choose from markdown" in capsys.readouterr().err


def test_only_some_methods(store, capsys):
    assert main(["compare", str(store), "--methods", "cup", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in told["tables"][0]["rows"]] == ["Original", "Retrain", "CUP"]
    assert main(["compare", str(store), "--methods", "cup,bs"]) == 1
    assert "the store has no method 'bs'; it has cup, ws" in capsys.readouterr().err


def test_a_damaged_run_is_named_and_left_out(store, capsys):
    victim = sorted(store.glob("runs/*/*.json"))[0]
    victim.write_text(victim.read_text()[:-40])
    assert main(["compare", str(store)]) == 1
    told = capsys.readouterr()
    assert victim.name in told.err
    assert "leads" in told.out


def test_other_settings_are_kept_apart(store, record, capsys):
    more = Store(store)
    for one in (record("retrained", (1, 1, 0.9, 1)), record("run", (0.5, 0.5, 0.5, 0.5), series="CUP", method="cup")):
        more.put(replace(one, key=digest_of([one.key, "other"]), provenance={"setting_key": "abcdef123456"}))
    more.close()
    assert main(["compare", str(store), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [table["problem"] for table in told["tables"]] == ["digits [abcdef]", "digits [unknown]"]
    assert any("2 settings" in note for note in told["notes"])


def test_failed_runs_are_told(store, capsys):
    more = Store(store)
    more.fail("00", "BS (lr=0.1), class 3, seed 0", "out of range")
    more.close()
    assert main(["compare", str(store), "--json"]) == 0
    assert "1 runs of BS failed: out of range" in json.loads(capsys.readouterr().out)["notes"]


def test_no_store_says_how_to_make_one(tmp_path, capsys):
    assert main(["compare", str(tmp_path / "nothing")]) == 1
    assert "gradpivot sweep" in capsys.readouterr().err


def test_needs_no_torch(store):
    call = f"from gradpivot.cli import main; main(['compare', {str(store)!r}])"
    probe = f"import sys; {call}; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
