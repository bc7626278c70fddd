"""Files from others, at random: whatever is in them, only our own errors come out.

A few examples run with the other tests; ``make fuzz ONLY=tests/hostile`` draws new ones for about ten minutes.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import HealthCheck, example, given, settings, strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot.cli import main
from gradpivot.cli.parser import _add_defaults, parse
from gradpivot.data import ForgetSplit
from gradpivot.errors import GradPivotError
from gradpivot.evaluate import steering_metrics
from gradpivot.experiments import load_recipe, read_recipe_text
from gradpivot.loop.checkpoint import Checkpoint
from gradpivot.models import load_foreign, load_weights
from gradpivot.sweep.cell import digest_of
from gradpivot.sweep.store.records import seal
from gradpivot.sweep.store.store import Store
from gradpivot.targets import Targets

FUZZING = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
quickly = settings(
    max_examples=300 if FUZZING else 15,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
less = settings(quickly, max_examples=100 if FUZZING else 10)
slowly = settings(quickly, max_examples=20 if FUZZING else 2)

NUMBERS = st.sampled_from([0, -1, 1, 2, 0.5, 1e-4, -0.0, 1e308, 10**9, 10**30, 10**400, float("nan"), float("inf")])
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=8) | st.sampled_from(["cup", "0-9", "1e-4", "toy"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
DATES = st.dates() | st.datetimes() | st.binary(max_size=4) | st.sets(st.integers(0, 3), max_size=2)


def paths(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every value inside another."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, part in inner for path in ((*above, key), *paths(part, (*above, key)))]


@st.composite
def changed(draw: st.DrawFn, good: Any, values: st.SearchStrategy[Any] = VALUES) -> Any:
    """A sound value with up to three parts removed, replaced, added or moved."""
    found = copy.deepcopy(good)
    for _ in range(draw(st.integers(1, 3))):
        places = paths(found)
        if not places:
            return draw(values)
        *outer, last = draw(st.sampled_from(places))
        inner = found
        for key in outer:
            inner = inner[key]
        how = draw(st.sampled_from(["replace", "remove", "add", "copy"]))
        if how == "remove":
            del inner[last]
        elif how == "add" and isinstance(inner, dict):
            inner[draw(st.text(max_size=5))] = draw(values)
        elif how == "copy":
            inner[last] = copy.deepcopy(found)
        else:
            inner[last] = draw(values)
    return found


@contextlib.contextmanager
def only_our_errors():
    """Our errors are fine; any other exception is a bug, and a usage error has its status."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            yield
        except GradPivotError:
            pass
        except SystemExit as stop:
            if stop.code not in (0, 2):
                raise
    assert "Traceback" not in said.getvalue()


def as_json(value: Any) -> str:
    return json.dumps(value, default=str)


# Text that looks like YAML or JSON.
WORDS = st.sampled_from(
    [*"[]{}:,-&*!|>?#%'\"\n ", "a", "b", "&a ", "*a", "<<: ", "!!int ", "!!map ", "gamma: ", "- ", "seeds: ", "0x",
     "2001-13-01", "1_0", ".inf", "~", "é", "\u2028", "\t", "\x00", "--- ", "..."]
)  # fmt: skip
TEXTS = st.lists(WORDS, max_size=20).map("".join)
RECIPES = [yaml.safe_load(read_recipe_text(name)) for name in ("digits", "mnist-quick", "control-digits")]


def dumped(value: Any) -> str:
    return str(yaml.safe_dump(value, allow_unicode=True))


@quickly
@given(st.sampled_from(RECIPES).flatmap(lambda recipe: changed(recipe, VALUES | DATES)).map(dumped) | TEXTS)
def test_recipes(tmp_path: Path, text: str):
    (tmp_path / "r.yaml").write_text(text, encoding="utf-8")
    with only_our_errors():
        load_recipe(tmp_path / "r.yaml").to_dict()


CONFIG = {"problem": "toy", "classes": "1", "gamma": 0.5, "lr": 1e-3, "method": "cup", "map": ["a=b"], "threads": 1,
          "protocol": "paper", "device": "cpu", "until": "UA>=95"}  # fmt: skip


COMMANDS = st.sampled_from(["unlearn", "trace", "train", "sweep digits"])


@quickly
@given(changed(CONFIG, VALUES | DATES).map(dumped) | TEXTS, COMMANDS)
def test_options(tmp_path: Path, text: str, command: str):
    (tmp_path / "o.yaml").write_text(text, encoding="utf-8")
    with only_our_errors():
        words = _add_defaults([*command.split(), "--config", str(tmp_path / "o.yaml")])
        assert all(isinstance(word, str) for word in words)


@slowly
@given(changed(CONFIG, VALUES | DATES).map(dumped), COMMANDS)
def test_parsed_options(tmp_path: Path, text: str, command: str):
    (tmp_path / "o.yaml").write_text(text, encoding="utf-8")
    with only_our_errors():
        parse([*command.split(), "--config", str(tmp_path / "o.yaml")])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, record: Callable[..., Any]) -> Store:
    store = Store(tmp_path_factory.mktemp("made") / "store", create=True)
    for role, scores in (("original", (1, 0, 1, 0.5)), ("retrained", (1, 1, 1, 1)), ("run", (0.99, 0.5, 0.9, 0.5))):
        store.put(replace(record(role, scores), key=digest_of(role)))
    return store


def sound_records(record: Callable[..., Any]) -> list[dict[str, Any]]:
    history = {"step": [0, 1], "cosine": [0.5, None]}
    facts = {"setting_key": "k", "cell": {"target": {"kind": "class", "classes": [3]}}}
    run = record("run", (0.9, 0.9, 0.9, 0.9), settings={"gamma": 0.5, "lr": 0.1}, knob=0.5, provenance=facts)
    run = replace(run, key=digest_of("bad"), point=replace(run.point, history=history))
    known = run.to_dict()
    generated = {"called": [[3, 1], [0, 4]], "asked": [0, 1], "forgotten": [1], "classifier_accuracy": 0.9,
                 "frechet": [{"value": 3.0, "features": "f", "n": 8, "n_reference": 9}], "rescale": 500.0}  # fmt: skip
    losses = {"forget_loss": 1.0, "retain_loss": 0.5, "n_forget": 3, "n_retain": 4}
    others = [{**known, "point": {**known["point"], "scores": scores}} for scores in (generated, losses)]
    drawings = {**known, "pictures": {"png": "AAAA", "rows": [1, 0], "columns": 2}, "margins": [0.5]}
    return [known, {**known, "role": "retrained", "kind": "random"}, drawings, *others]


@less
@given(st.data())
def test_records(made: Store, record: Callable[..., Any], data: st.DataObject):
    value = data.draw(st.sampled_from(sound_records(record)).flatmap(changed))
    path = made.folder / "runs" / digest_of("bad")[:2] / f"{digest_of('bad')}.json"
    path.parent.mkdir(exist_ok=True)
    sealed = as_json(seal(digest_of("bad"), json.loads(as_json(value))))
    path.write_text(data.draw(st.sampled_from([sealed, as_json(value), sealed[: len(sealed) // 2]])))
    with only_our_errors():
        assert len(made.records()) >= 3
        assert main(["compare", str(made.folder)]) in (0, 1)
    with only_our_errors():
        assert main(["store", "check", str(made.folder)]) in (0, 1)
    (made.folder / "x.jsonl").write_text(sealed)
    with only_our_errors():
        main(["store", "import", str(made.folder / "other"), str(made.folder / "x.jsonl")])


DATA = TensorDataset(torch.zeros(6, 2), torch.arange(6) % 3)


@quickly
@given(st.data())
def test_splits(tmp_path: Path, data: st.DataObject):
    path = tmp_path / "s.json"
    made = [ForgetSplit.by_class(DATA, DATA, 1), ForgetSplit.by_index(DATA, DATA, [0], already_forgotten=[1])]
    data.draw(st.sampled_from(made)).save(path)
    path.write_text(data.draw(changed(json.loads(path.read_text())).map(as_json) | TEXTS))
    with only_our_errors():
        ForgetSplit.load(path, DATA, DATA)
    with only_our_errors():
        ForgetSplit.by_index(DATA, DATA, [0], already_forgotten=path)


class Normalised(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.register_buffer("mean", torch.zeros(2), persistent=False)


HEADER = {"gradpivot": {"method": "CUP", "split": "0", "diverged": None}, "constants": {"mean": [0.0, 0.0]}}


@quickly
@given(changed(HEADER), st.binary(max_size=8), st.booleans())
@example(HEADER | {"constants": {"mean": [10**400, 0.0]}}, b"", False)
def test_headers_of_weights(tmp_path: Path, header: Any, end: bytes, is_text: bool):
    path = tmp_path / "w.safetensors"
    described = header if isinstance(header, dict) else {"gradpivot": header}
    metadata = {
        name: value if is_text and isinstance(value, str) else as_json(value) for name, value in described.items()
    }
    tensors = {"weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
               "bias": {"dtype": "F32", "shape": [2], "data_offsets": [16, 24]}}  # fmt: skip
    text = json.dumps({"__metadata__": metadata, **tensors}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(24 - len(end)) + end)
    with only_our_errors():
        load_weights(Normalised(), path)
    with only_our_errors():
        load_foreign(Normalised(), path)


SAVED = {"key": "k", "seconds": 1.0, "state": {"step": 3, "weights": [0.0]}}


@quickly
@given(changed(SAVED))
def test_checkpoints(tmp_path: Path, saved: Any):
    torch.save(saved, tmp_path / "c.pt")
    with only_our_errors():
        Checkpoint(tmp_path / "c.pt", "k", 0).load()


NAMES = st.sampled_from([*steering_metrics(), "UA", "RA", "MIA-SVC", "x", ""])
CONDITIONS = st.tuples(
    NAMES, st.sampled_from([">=", "<=", ">", "<", "=", "≥"]), NUMBERS.map(str) | st.text("0123456789.-%e", max_size=8)
).map("".join)
SPECS = (
    st.lists(CONDITIONS, max_size=3).map(", ".join)
    | st.text("UARMI>=<0123456789.,% and", max_size=20)
    | st.dictionaries(NAMES, SCALARS, max_size=3)
)


@quickly
@given(SPECS | st.none(), SPECS | st.none())
def test_conditions(until: Any, keep: Any):
    with only_our_errors():
        str(Targets.read(until, keep))
