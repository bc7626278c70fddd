from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from gradpivot import list_methods
from gradpivot.errors import GradPivotError
from gradpivot.methods import make_method, method_class
from gradpivot.methods.method import ForgettingDescent, Method


def test_lists_by_pattern():
    assert {"cup", "ga", "ws", "retrain"} <= set(list_methods())
    assert list_methods("c*") == ["cup"]


def test_a_subclass_is_registered_by_being_there():
    @dataclass(frozen=True, kw_only=True)
    class Nothing(ForgettingDescent):
        name: ClassVar[str] = "nothing-at-all"
        title: ClassVar[str] = "Nothing"

        def unlearn(self, model, task, split, loop):
            pass

    try:
        assert "nothing-at-all" in list_methods()
        assert make_method({"method": "nothing-at-all", "lr": 0.5}) == Nothing(lr=0.5)
    finally:
        Method._registry.pop("nothing-at-all")


def test_unknown_names_get_a_hint():
    with pytest.raises(GradPivotError, match="did you mean 'cup'"):
        method_class("cop")
    with pytest.raises(GradPivotError, match="needs a name"):
        make_method({"gamma": 0.5})
