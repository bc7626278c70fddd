from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
from hypothesis import given, strategies as st

from gradpivot.experiments.recipes.reading import load_recipe
from gradpivot.methods.cup import CUP
from gradpivot.sweep.cell import Cell, Setting, cells_of, digest_of

SETTING = Setting(
    problem="digits", name="digits", data="abc", model="m", training={"method": "retrain", "lr": 0.1, "epochs": 2},
    versions={"gradpivot": "1", "torch": "2"}, threads=1, device="cpu",
)  # fmt: skip
CELL = Cell(
    setting=SETTING, target={"kind": "class", "classes": [3]}, seed=0, role="run", protocol="clean", series="CUP",
    method=CUP(gamma=0.3).to_dict(),
)  # fmt: skip

RECIPE = """
schema: gradpivot.recipe/1
problem: digits
forget: [{classes: [3, 5]}, {fraction: 0.1}]
seeds: 2
protocols:
  clean: {series: {CUP: {method: cup, gamma: [0.1, 0.9]}, Other: {method: cup, gamma: 0.1}}}
"""


@pytest.mark.parametrize(
    "change",
    [
        {"problem": "toy"}, {"name": "toy"}, {"data": "abd"}, {"model": "n"}, {"training": {"lr": 0.2}},
        {"versions": {"gradpivot": "1", "torch": "3"}}, {"threads": 2}, {"device": "cuda"},
    ],
)  # fmt: skip
def test_every_part_of_the_setting_is_in_both_keys(change):
    other = replace(CELL, setting=replace(SETTING, **change))
    assert other.key != CELL.key
    assert other.original_key != CELL.original_key


@pytest.mark.parametrize(
    "change",
    [
        {"target": {"kind": "class", "classes": [4]}}, {"target": {"kind": "random", "fraction": 0.1}}, {"seed": 1},
        {"role": "retrained"}, {"protocol": "paper"}, {"series": "Mine"}, {"method": CUP(gamma=0.4).to_dict()},
    ],
)  # fmt: skip
def test_every_part_of_a_cell_is_in_its_key(change):
    assert replace(CELL, **change).key != CELL.key


def test_every_setting_of_the_method_is_in_the_key():
    keys = {replace(CELL, method={**CELL.method, name: "other"}).key for name in CELL.method}
    assert len(keys | {CELL.key}) == len(CELL.method) + 1


def test_the_original_depends_on_the_seed_and_not_on_what_is_forgotten():
    assert replace(CELL, seed=1).original_key != CELL.original_key
    assert replace(CELL, target={"kind": "random", "fraction": 0.5}).original_key == CELL.original_key


@pytest.mark.parametrize("change", [{"retain_scored": 7}, {"judging": {"samples": 9, "classifier_key": "k"}}])
def test_how_runs_are_scored_is_in_their_key_and_needs_no_other_original(change):
    other = replace(CELL, setting=replace(SETTING, **change))
    assert other.key != CELL.key
    assert other.original_key == CELL.original_key


def test_json_round_trip_keeps_the_key():
    again = Cell.from_dict(json.loads(json.dumps(CELL.to_dict())))
    assert again == CELL
    assert again.key == CELL.key


def test_the_order_of_settings_does_not_matter():
    turned = dict(reversed(CELL.method.items()))
    assert list(turned) != list(CELL.method)
    assert replace(CELL, method=turned).key == CELL.key


def test_keys_are_the_same_in_every_process():
    code = f"from gradpivot.sweep.cell import Cell; print(Cell.from_dict({CELL.to_dict()!r}).key)"
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.strip() == CELL.key


@given(st.dictionaries(st.text(), st.floats(allow_nan=False) | st.integers() | st.text() | st.none(), min_size=2))
def test_digests_know_content_only(values):
    turned = dict(reversed(values.items()))
    assert digest_of(values) == digest_of(turned)
    assert digest_of(values) != digest_of({**values, "one more": 1, "two": 2})


def test_cells_of_a_recipe(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE)
    recipe = load_recipe(path)
    cells = cells_of(recipe, SETTING)
    targets = 3
    assert len(cells) == 2 * targets * (2 + 3) == recipe.runs + 2 * targets * 2
    assert len({cell.key for cell in cells}) == len(cells)
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
    assert [cell.role for cell in cells[:6]] == ["original", "retrained"] * 3
    assert {cell.role for cell in cells[6:15]} == {"run"}
    assert [cell.forget for cell in cells[:6:2]] == ["3", "5", "10 %"]
    assert {cell.protocol for cell in cells if cell.role == "run"} == {"clean"}
    assert all(dict(cell.method) == SETTING.training for cell in cells if cell.role == "retrained")


# Worlds of an audit

WORLD = replace(CELL, seed=5, target={"kind": "class", "classes": [3], "world": 5, "worlds_seed": 0})


def test_keys_without_a_world_are_what_they_were():
    """Stores of earlier versions stay valid: the digests are spelled out here."""
    described = {n: v for n, v in asdict(SETTING).items() if n not in ("retain_scored", "judging")}
    assert CELL.original_key == digest_of({"original": described, "seed": 0})
    assert CELL.key == digest_of(asdict(CELL))
    assert CELL.world is None
    assert CELL.forget == "3"


@pytest.mark.parametrize(
    "change",
    [
        {"target": {**WORLD.target, "world": 6}}, {"target": {**WORLD.target, "worlds_seed": 1}},
        {"target": {**WORLD.target, "classes": [4]}}, {"target": CELL.target}, {"seed": 6},
        {"setting": replace(SETTING, data="other")},
    ],
)  # fmt: skip
def test_a_shadow_depends_on_the_training_data_of_its_world(change):
    other = replace(WORLD, **change)
    assert other.original_key != WORLD.original_key
    assert other.key != WORLD.key


@pytest.mark.parametrize(
    "change",
    [
        {"method": CUP(gamma=0.4).to_dict()}, {"series": "Mine"}, {"role": "retrained"}, {"protocol": "paper"},
        {"setting": replace(SETTING, retain_scored=7)}, {"setting": replace(SETTING, original="pretrained")},
    ],
)  # fmt: skip
def test_all_methods_share_the_shadow_of_a_world(change):
    other = replace(WORLD, **change)
    assert other.original_key == WORLD.original_key
    assert other.key != WORLD.key


def test_a_world_is_named_with_its_forget_set():
    world = {"world": 5, "worlds_seed": 0}
    assert WORLD.forget == "3 (world 5)"
    assert replace(WORLD, target={"kind": "random", "fraction": 0.1, "seed": 0, **world}).forget == "10 % (world 5)"
    assert replace(WORLD, target={"kind": "index", "indices": [4, 5], **world}).forget == "2 records (world 5)"
    assert WORLD.world == 5
    again = Cell.from_dict(json.loads(json.dumps(WORLD.to_dict())))
    assert (again.key, again.original_key) == (WORLD.key, WORLD.original_key)
