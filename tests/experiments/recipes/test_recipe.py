from __future__ import annotations

import json
import re
import textwrap
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from gradpivot.errors import GradPivotError
from gradpivot.experiments.recipes import finding, spaces
from gradpivot.experiments.recipes.reading import load_recipe
from gradpivot.experiments.recipes.recipe import ForgetSpec, numbers_in

GOOD = """
schema: gradpivot.recipe/1
title: Two methods
problem: digits
forget: [{classes: 0-2}, {fraction: 0.1}]
seeds: 2
protocols:
  clean:
    settings: {batch_size: 8, forget_weight: 0.5}
    series:
      CUP: {method: cup, lr: [1e-4, 1.0e-3], gamma: {from: 0, to: 1, count: 5}}
      WS: {method: ws}
  paper:
    series:
      GA: {method: ga, lr: {from: 1e-4, to: 1e-2, count: 3, scale: log}}
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "mine.yaml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write


def wrong(path: Path | str) -> str:
    """The error of a recipe: one line that names the recipe."""
    with pytest.raises(GradPivotError) as caught:
        load_recipe(path)
    message = str(caught.value)
    assert "\n" not in message
    assert Path(path).name in message
    return message


def test_a_whole_recipe(write):
    recipe = load_recipe(write(GOOD))
    assert (recipe.name, recipe.title, recipe.problem, recipe.seeds) == ("mine", "Two methods", "digits", 2)
    assert recipe.protocols == ["clean", "paper"]
    assert [(s.protocol, s.name, s.method, len(s.methods)) for s in recipe.series] == [
        ("clean", "CUP", "cup", 10), ("clean", "WS", "ws", 1), ("paper", "GA", "ga", 3),
    ]  # fmt: skip
    assert recipe.runs == 4 * 2 * 14
    cup, ws, ga = recipe.series
    assert {m.lr for m in cup.methods} == {1e-4, 1e-3}
    assert sorted({m.gamma for m in cup.methods}) == [0, 0.25, 0.5, 0.75, 1]
    assert all(m.batch_size == 8 for m in cup.methods)
    assert (ws.methods[0].batch_size, ws.methods[0].forget_weight) == (8, 0.5)
    assert [m.lr for m in ga.methods] == [1e-4, 1e-3, 1e-2]
    assert ga.methods[0].objective == "negative_ce"
    assert [t for f in recipe.forget for t in f.targets] == [
        *({"kind": "class", "classes": [c]} for c in range(3)),
        {"kind": "random", "fraction": 0.1},
    ]
    told = json.loads(json.dumps(recipe.to_dict()))
    assert told["runs"] == recipe.runs
    assert len(told["series"][0]["methods"]) == 10


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds: 2", "sedes: 2", "did you mean 'seeds'"),
        ("seeds: 2", "seeds: 0", "it must be a whole number, at least 1"),
        ("seeds: 2", "seeds: two", "seeds is 'two'"),
        ("seeds: 2", "seeds: true", "seeds is True"),
        ("schema: gradpivot.recipe/1", "schema: gradpivot.recipe/9", "reads 'gradpivot.recipe/1'"),
        ("schema: gradpivot.recipe/1", "", "schema is None"),
        ("problem: digits", "", "'problem' is missing"),
        ("forget: [{classes: 0-2}, {fraction: 0.1}]", "", "'forget' is missing"),
        ("forget: [{classes: 0-2}, {fraction: 0.1}]", "forget: []", "'forget' is missing"),
        ("forget: [{classes: 0-2}, {fraction: 0.1}]", "forget: 3", "forget is 3"),
        ("{classes: 0-2}", "{class: 3}", "did you mean 'classes'"),
        ("{classes: 0-2}", "{classes: 2-0}", "write 3, or 3,5, or 0-4"),
        ("{classes: 0-2}", "{classes: 0-99999999999}", "write 3, or 3,5, or 0-4"),
        ("{classes: 0-2}", "{classes: [three]}", "write 3, or 3,5, or 0-4"),
        ("{classes: 0-2}", "{}", "forget needs either classes"),
        ("{classes: 0-2}", "{classes: 0-2}, {classes: 1}", "'classes': [1]} twice"),
        ("{fraction: 0.1}", "{fraction: 2}", "between 0 and 1"),
        ("{fraction: 0.1}", "{fraction: a lot}", "fraction is 'a lot'"),
        ("{fraction: 0.1}", "{fraction: 0.1}, {fraction: 1e-1}", "twice"),
        ("method: ws", "metod: ws", "protocol clean, WS: the series has no method"),
        ("method: ws", "method: wss", "did you mean 'ws'"),
        ("WS: {method: ws}", "WS: ws", "protocol clean, WS: a series is 'ws'"),
        ("WS: {method: ws}", "WS: {method: ws, momentun: 0.5}", "protocol clean, WS: .*did you mean 'momentum'"),
        ("WS: {method: ws}", "WS: {method: ws, lr: []}", "protocol clean, WS: lr is an empty list"),
        ("WS: {method: ws}", "WS: {method: ws, lr: fast}", "protocol clean, WS: .*lr is 'fast'"),
        ("WS: {method: ws}", "WS: {method: ws, lr: [[1]]}", "single values"),
        ("WS: {method: ws}", "WS: {method: ws, lr: [{from: 1, to: 2, count: 2}]}", "single values"),
        ("WS: {method: ws}", "WS: {method: ws, lr: [0.1, 1e-1]}", "protocol clean, WS has WS"),
        ("WS: {method: ws}", "CUP: {method: ws}", "duplicate key 'CUP'"),
        ("batch_size: 8", "batchsize: 8", "settings: unknown key 'batchsize'; did you mean 'batch_size'"),
        ("from: 0, to: 1, count: 5", "from: 0, to: 1, count: 1", "a range is"),
        ("from: 0, to: 1, count: 5", "from: 0, to: 1", "a range is"),
        ("from: 0, to: 1, count: 5", "from: 0, to: 2, count: 5", "protocol clean, CUP: gamma is 1.5"),
        ("from: 0, to: 1, count: 5", "from: 0, to: 1, count: 5, scale: log", "a range is"),
        ("from: 0, to: 1, count: 5", "from: 0, to: 1, count: 5, steps: 3", "a range is"),
        ("from: 0, to: 1, count: 5", "from: low, to: 1, count: 5", "a range is"),
        ("from: 0, to: 1, count: 5", "from: 0, to: 1, count: 999999999", "a range is"),
        ("from: 0, to: 1, count: 5", "from: 0, to: 1, count: 60000", "the search space has 120000 settings"),
        ("  paper:", "  printed:\n    base: pape", "choose paper or clean"),
        ("  paper:", "  paper:\n    sries: {}", "did you mean 'series'"),
        ("protocols:", "protocols: 3\nabout:", "protocols is 3"),
        ("protocols:", "about:", "'protocols' is missing"),
    ],
)  # fmt: skip
def test_what_people_get_wrong_names_the_place(write, old, new, message):
    assert old in GOOD
    assert re.search(message if ".*" in message else re.escape(message),
                     wrong(write(GOOD.replace(old, new, 1))))  # fmt: skip


def test_files_that_are_no_recipes(tmp_path, write):
    assert "not valid YAML" in wrong(write("a: [1"))
    assert "must be a mapping" in wrong(write("- 1\n"))
    assert "must be a mapping" in wrong(write(""))
    assert "No such file" in wrong(tmp_path / "none.yaml")
    (tmp_path / "folder.yaml").mkdir()
    assert "Is a directory" in wrong(tmp_path / "folder.yaml")
    assert "or give a YAML file" in wrong(tmp_path)
    (tmp_path / "latin.yaml").write_bytes("title: für\n".encode("latin-1"))
    assert "not UTF-8 text" in wrong(tmp_path / "latin.yaml")
    assert "there is no recipe 'nosuch'" in wrong("nosuch")


def test_series_without_any_or_of_no_protocol(write):
    assert "protocol clean has no series" in wrong(
        write("{schema: gradpivot.recipe/1, problem: digits, forget: {classes: 1}, protocols: {clean: {}}}")
    )


def test_extends_fills_in_replaces_and_removes(write):
    write(GOOD, "base.yaml")
    child = load_recipe(
        write(
            """
            extends: base.yaml
            seeds: 1
            title: null
            protocols:
              paper: null
              clean: {series: {CUP: {gamma: 0.3}, WS: null, Mine: {method: ga}}}
            """,
            "child.yaml",
        )
    )
    assert child.name == child.title == "child"
    assert child.seeds == 1
    assert child.problem == "digits"
    assert [(s.protocol, s.name, len(s.methods)) for s in child.series] == [("clean", "CUP", 2), ("clean", "Mine", 1)]
    assert {m.gamma for m in child.series[0].methods} == {0.3}


def test_a_file_is_extended_from_beside_it(write, monkeypatch, tmp_path):
    write(GOOD, "sub/base.yaml")
    path = write("{extends: base.yaml, seeds: 7}", "sub/child.yaml")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load_recipe(path).seeds == 7


def test_a_range_takes_the_place_of_a_range(write):
    write(GOOD, "base.yaml")
    text = "{extends: base.yaml, protocols: {clean: {series: {CUP: {gamma: {from: 0.5, to: 0.7, count: 3}}}}}}"
    assert {m.gamma for m in load_recipe(write(text)).series[0].methods} == {0.5, 0.6, 0.7}


def test_extending_oneself_is_refused_however_it_is_spelled(write):
    assert "extends itself" in wrong(write("extends: mine.yaml"))
    write("extends: a/../two.yaml", "one.yaml")
    (write("x: 1", "a/none.yaml")).unlink()
    assert "extends itself" in wrong(write("extends: one.yaml", "two.yaml"))
    with pytest.raises(GradPivotError, match="No such file"):
        load_recipe(write("extends: gone.yaml", "three.yaml"))


def test_recipes_of_ours_are_listed_and_hinted_at(write, monkeypatch, tmp_path):
    write(GOOD, "ours.yaml")
    write("schema: gradpivot.recipe/1", "part.yaml")
    monkeypatch.setattr(finding, "_folder", lambda: tmp_path)
    assert finding.list_recipes() == ["ours"]
    assert load_recipe("ours").runs > 0
    assert "did you mean 'ours'?" in wrong("our")
    assert load_recipe(write("{extends: ours, seeds: 9}", "mine.yaml")).seeds == 9


@pytest.mark.parametrize("name", finding.list_recipes())
def test_every_recipe_of_ours_is_sound(name):
    assert load_recipe(name).runs > 0


def test_only_takes_parts(write):
    recipe = load_recipe(write(GOOD))
    assert [s.name for s in recipe.only(methods=["cup", "Ga"]).series] == ["CUP", "GA"]
    assert [s.name for s in recipe.only(protocols=["paper"]).series] == ["GA"]
    assert recipe.only(seeds=5).seeds == 5
    assert recipe.only(forget=[ForgetSpec(classes=(7,))]).forget == (ForgetSpec(classes=(7,)),)
    assert recipe.only() == recipe
    with pytest.raises(GradPivotError, match="no method 'cupp'; did you mean 'cup'"):
        recipe.only(methods=["cupp"])
    with pytest.raises(GradPivotError, match="no protocol 'papre'; did you mean 'paper'"):
        recipe.only(protocols=["papre"])
    with pytest.raises(GradPivotError, match="no runs of the recipe"):
        recipe.only(protocols=["paper"], methods=["cup"])
    with pytest.raises(GradPivotError, match="give 1 or more"):
        recipe.only(seeds=0)


@given(st.floats(1e-8, 1e8), st.floats(1e-8, 1e8), st.integers(2, 60), st.sampled_from(["linear", "log"]))
def test_ranges_have_exact_ends_and_go_one_way(first, last, count, scale):
    found = spaces._range("lr", {"from": first, "to": last, "count": count, "scale": scale})
    assert len(found) == count
    assert (found[0], found[-1]) == (first, last)
    steps = [b - a for a, b in pairwise(found)]
    if abs(last - first) > 1e-6 * max(first, last):
        assert all(step * (last - first) >= 0 for step in steps)


def test_ranges_are_the_numbers_people_expect():
    tenths = spaces._range("gamma", {"from": 0.1, "to": 0.9, "count": 9})
    assert tenths == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert spaces._range("lr", {"from": "1e-4", "to": "1e-1", "count": 4, "scale": "log"}) == [
        1e-4, 1e-3, 1e-2, 1e-1,
    ]  # fmt: skip


@given(st.lists(st.integers(0, 40), min_size=1))
def test_numbers_in_keeps_order_and_drops_repeats(numbers):
    assert numbers_in(",".join(map(str, numbers))) == tuple(dict.fromkeys(numbers))
    assert numbers_in(numbers) == tuple(dict.fromkeys(numbers))


def test_numbers_in_ranges():
    assert numbers_in("0-2,7") == (0, 1, 2, 7)
    assert numbers_in(3) == (3,)


def test_a_reference_is_retrained_or_left_out(tmp_path):
    assert load_recipe("digits").reference == "retrain"
    assert load_recipe("cifar10-pretrained").reference == "none"
    file = tmp_path / "mine.yaml"
    file.write_text("extends: digits\nreference: maybe\n")
    with pytest.raises(GradPivotError, match="reference is 'maybe'; choose one of retrain, none"):
        load_recipe(file)


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ("0-999999999", "'0-999999999' has more than 100,000 classes; write 3, or 3,5, or 0-4"),
        ("9-1", "the range '9-1' goes down; write 3, or 3,5, or 0-4"),
        ("a", "cannot read the classes 'a'; write 3, or 3,5, or 0-4"),
        ("3-", "cannot read the classes '3-'"),
        ("-3", "cannot read the classes '-3'"),
    ],
)
def test_classes_that_cannot_be_read(classes, said):
    with pytest.raises(GradPivotError) as error:
        numbers_in(classes)
    assert said in str(error.value)
