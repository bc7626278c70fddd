"""Escaping in the building blocks of pages."""

from __future__ import annotations

from gradpivot.report.common.markup import Html, definition_list, sortable_table


def test_cells_are_escaped_unless_they_are_markup() -> None:
    table = sortable_table("t", "Label", ("A", "B"), [["<i>", Html("<b>x</b>")]])
    assert '<th scope="row">&lt;i&gt;</th><td><b>x</b></td>' in table


def test_definitions_nest_and_are_escaped() -> None:
    text = definition_list({"<a>": {"b": [1, "<c>"]}, "empty": {}, "none": None})
    assert '<dt>&lt;a&gt;</dt><dd><dl class="details"><dt>b</dt><dd>1, &lt;c&gt;</dd></dl></dd>' in text
    assert text.count("<dd>–</dd>") == 2
    assert definition_list({}) == "<p>Not recorded.</p>"
