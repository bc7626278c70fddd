"""Help: short, complete with --help-all, and made from what is parsed."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from gradpivot.cli import main
from gradpivot.cli.options.fields import FOLDED
from gradpivot.cli.parser import _COMMANDS, _NESTED
from gradpivot.methods import list_methods, method_class

COMMANDS = [[name] for name in _COMMANDS] + [[name, kind] for name, (_, kinds) in _NESTED.items() for kind in kinds]


def shown(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_the_front_page_is_short_and_names_every_command(capsys):
    text = shown(["--help"], capsys)
    assert len(text.splitlines()) < 45
    assert all(f"\n  {name} " in text for name in _COMMANDS)
    assert "…" not in text
    assert text == shown([], capsys) == shown(["-h"], capsys)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_help_of_a_command_is_calm(words, capsys):
    text = shown([*words, "--help"], capsys)
    assert len(text.splitlines()) < 60
    for noise in ("None", "``", "│", "default )", "{"):
        assert noise not in text.replace("usage: gradpivot " + " ".join(words) + " {", "")


@pytest.mark.parametrize("method", list_methods())
def test_the_help_of_a_method_shows_its_knob_and_with_help_all_every_setting(method, capsys):
    text = shown(["unlearn", method, "--help"], capsys)
    assert len(text.splitlines()) < 60
    kind = method_class(method)
    assert kind.knob is None or f"--{kind.knob.replace('_', '-')}" in text
    everything = shown(["unlearn", method, "--help-all"], capsys)
    assert all(f"--{f.name.replace('_', '-')} " in everything for f in dataclasses.fields(kind) if f.type != "bool")


def test_folded_sections_are_named(capsys):
    text, everything = shown(["unlearn", "--help"], capsys), shown(["unlearn", "--help-all"], capsys)
    assert "--help-all: method settings" in text
    assert "--precision" not in text
    assert "--precision float32|bfloat16|float16" in everything
    assert sum(f"\n{title}:" in everything for title in FOLDED) == 3


def test_a_trace_shows_the_values_and_not_the_knob(capsys):
    assert "--values" in shown(["trace", "cup", "--help"], capsys)
    assert "--gamma" not in shown(["trace", "cup", "--help"], capsys)
    assert "--gamma" in shown(["trace", "cup", "--help-all"], capsys)
    assert "--gamma" in shown(["trace", "ws", "--help"], capsys)


def test_names_come_from_the_registries(capsys):
    everything = " ".join(shown(["unlearn", "--help-all"], capsys).split())
    assert "Forgetting loss: suited, unlikelihood, negative_ce" in everything
    assert "resnet18, resnet20" in everything
    assert "mnist-ddpm, mnist16" in everything


@pytest.mark.parametrize("words", [["--help"], ["unlearn", "--help-all"], ["methods"], ["recipes"], ["data", "list"]])
def test_help_and_listings_import_no_torch(words):
    code = f"import sys\nfrom gradpivot.cli import main\ntry: main({words})\nexcept SystemExit: pass\n"
    done = subprocess.run(
        [sys.executable, "-c", code + "sys.exit('torch' in sys.modules)"], capture_output=True, check=False
    )
    assert done.returncode == 0
