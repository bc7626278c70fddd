from __future__ import annotations

import io
import json
import sys

import pytest

from gradpivot.cli.streams import escaped_json, prepare_streams


@pytest.fixture
def out(monkeypatch):
    def stream(encoding: str, errors: str = "strict") -> io.TextIOWrapper:
        made = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors)
        monkeypatch.setattr(sys, "stdout", made)
        prepare_streams()
        return made

    return stream


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [
        ("ascii", "? > -0.5 x Frechet < a'b ?"),
        ("cp1252", "? > -0.5 × Fréchet < a’b ?"),
        ("utf-8", "γ → −0.5 × Fréchet ≤ a’b ?"),
    ],
)
def test_characters_are_replaced_by_ones_that_look_alike(out, encoding, printed):
    stream = out(encoding)
    stream.write("γ → −0.5 × Fréchet ≤ a’b \udcff")
    stream.flush()
    assert stream.buffer.getvalue().decode(encoding) == printed


def test_the_callers_own_error_handler_stays(out):
    assert out("ascii", "backslashreplace").errors == "backslashreplace"


def test_json_is_escaped_only_where_it_must_be(out):
    text = json.dumps({"a": "γ 𝄞"}, ensure_ascii=False)
    out("utf-8")
    assert escaped_json(text) == text
    out("ascii")
    assert escaped_json(text).isascii()
    assert json.loads(escaped_json(text)) == json.loads(text)
