from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from gradpivot.runtime.parsing import MAX_DEPTH, Number, checked, is_number, parse_json, parse_yaml

DEEP = st.integers(MAX_DEPTH - 3, MAX_DEPTH + 3)


@given(DEEP)
def test_json_is_read_up_to_a_depth(depth):
    text = "[" * depth + "]" * depth
    if depth <= MAX_DEPTH:
        assert parse_json(text) is not None
    else:
        with pytest.raises(ValueError, match="100 levels"):
            parse_json(text)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "", b"\xff", "1" * 5000])
def test_what_is_no_json_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"\w"):
        parse_json(text)


def test_aliases_count_as_what_they_stand_for():
    assert parse_yaml("a: &a [1, 2]\nb: [*a, *a]") == {"a": [1, 2], "b": [[1, 2], [1, 2]]}
    assert parse_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}")["b"] == {"x": 1, "y": 2}
    with pytest.raises(ValueError, match="inside its own anchor"):
        parse_yaml("&a [*a]")
    with pytest.raises(ValueError, match="undefined alias"):
        parse_yaml("[*a]")
    many = f"a: &a [{'1, ' * 999}]\nb: [{'*a, ' * 101}]"
    with pytest.raises(ValueError, match="more than 100,000 values"):
        parse_yaml(many)


@pytest.mark.parametrize(
    "text", ["!!int ''", "!!bool x", "!!timestamp q", "2001-99-99", "{[1]: 2}", "a: b: c", "!!x 1"]
)
def test_what_is_no_yaml_is_one_line(text):
    with pytest.raises(ValueError, match=r"\w") as error:
        parse_yaml(text)
    assert "\n" not in str(error.value)


def test_checked_names_what_is_wrong():
    assert checked({"a": 1, "b": True, "c": "x"}, a=Number, b=bool)["c"] == "x"
    for values, message in [
        ({}, "a is missing"),
        ({"a": "1"}, "a is '1'; it must be of type int"),
        ({"a": True}, "a is True"),
        ({"a": 10**400}, "a is 1000"),
        ([], "instead of a mapping with a"),
    ]:
        with pytest.raises(ValueError, match=message) as error:
            checked(values, a=int)
        assert len(str(error.value)) < 150
    with pytest.raises(ValueError, match="a is nan"):
        checked({"a": float("nan")}, a=Number | None)
    assert checked({"a": None}, a=Number | None) == {"a": None}


def test_numbers_fit_a_float():
    assert all(map(is_number, (0, -1.5, 10**200)))
    assert not any(map(is_number, (float("nan"), float("inf"), 10**400, "1", None)))
