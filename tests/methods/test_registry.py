from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from gradpivot import list_methods
from gradpivot.errors import GradPivotError
from gradpivot.methods.method import ForgettingDescent, Method
from gradpivot.methods.registry import make_method, method_class


def test_lists_by_pattern():
    assert {"cup", "ga", "ws", "retrain"} <= set(list_methods())
    assert list_methods("cu*") == ["cup"]
    assert {"pcgrad", "dcgd", "nash_mtl", "mgda", "cagrad", "upgrad"} <= set(list_methods())


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
    with pytest.raises(GradPivotError, match="has no method name"):
        make_method({"gamma": 0.5})


def test_two_methods_of_one_name_are_refused():
    def define(qualname):
        body = {"name": "cup", "title": "Mine", "__qualname__": qualname, "__module__": "elsewhere"}
        return type("Mine", (ForgettingDescent,), body)

    with pytest.raises(GradPivotError, match=r"methods\.cup\.CUP and elsewhere\.Mine are both named 'cup'"):
        define("Mine")
    assert method_class("cup").__name__ == "CUP"


def test_the_same_method_may_be_imported_again():
    known = method_class("cup")
    body = {"name": "cup", "title": "CUP", "__qualname__": known.__qualname__, "__module__": known.__module__}
    try:
        assert type("CUP", (ForgettingDescent,), body) is method_class("cup")
    finally:
        Method._registry["cup"] = known


OWN = """
from dataclasses import dataclass
from gradpivot.methods import GA

@dataclass(frozen=True, kw_only=True)
class Mine(GA):
    my_setting: int = 1

number = 3
"""


def test_a_method_by_import_path_keeps_that_name(tmp_path, monkeypatch):
    (tmp_path / "mine_by_path.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    list_methods()
    monkeypatch.setattr(Method, "_registry", dict(Method._registry))
    path = "mine_by_path:Mine"
    method = make_method({"method": path, "my_setting": 3})
    assert method.to_dict()["method"] == path
    assert make_method(method.to_dict()) == method
    assert method.label == "Mine(lr=0.001, my_setting=3)"
    assert method_class("ga").name == "ga"
    for wrong, message in (
        ("mine_by_path:Min", "module mine_by_path has no attribute 'Min'; did you mean 'Mine'?"),
        ("no_such_module:Mine", "no module named 'no_such_module'"),
        ("mine_by_path:number", "must be a class that inherits from Method"),
        ("gradpivot.methods.ga:GA", "is a built-in method; use its name 'ga'"),
    ):
        with pytest.raises(GradPivotError, match=message):
            method_class(wrong)
