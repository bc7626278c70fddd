"""Building blocks of self-contained pages: inlined assets, Content Security Policy, sortable tables, escaping."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from gradpivot.report.common.tables import DIVERGED_MARK
from gradpivot.report.common.wording import MISSING
from gradpivot.runtime import replacing

__all__ = [
    "Html",
    "bullet_list",
    "definition_list",
    "fill_page",
    "read_asset",
    "security_policy",
    "sortable_table",
    "write_html",
]  # fmt: skip

Text = str | tuple[str, str]
"""A cell: text, or text with the mark ``best`` or ``second``."""


class Html(str):
    """A cell whose text is markup already and is not escaped again."""

    __slots__ = ()


def fill_page(name: str, title: str, data: Mapping[str, Any], **texts: str) -> str:
    """Fill ``name/page.html`` and inline its style and scripts; the page makes no requests.

    Args:
        name: ``run``, ``standings``, ``generators`` or ``audit``.
        title: Plain text.
        data: Data for the script.
        texts: HTML for the page's other placeholders.
    """
    plotly, script = (
        read_asset("common/vendor/plotly-basic.min.js"),
        read_asset("common/charts.js") + read_asset(f"{name}/page.js"),
    )
    return Template(read_asset("common/frame.html")).substitute(
        policy=security_policy(plotly, script),
        style=read_asset("common/page.css"),
        title=escape(title),
        body=Template(read_asset(f"{name}/page.html")).substitute(title=escape(title), **texts),
        data=_script_json(data),
        plotly=plotly,
        script=script,
    )


def write_html(path: str | Path, text: str) -> Path:
    """Write a page atomically."""
    with replacing(path) as draft:
        draft.write_bytes(text.encode("utf-8", "replace"))
    return Path(path)


def read_asset(name: str) -> str:
    """Read a file of this package that a page inlines."""
    return resources.files("gradpivot.report").joinpath(name).read_text(encoding="utf-8")


def security_policy(*scripts: str) -> str:
    """A Content Security Policy that allows no requests and only the given scripts."""
    digests = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # Plotly sets style attributes and rules at run time, which hashes cannot cover.
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; " \
        "base-uri 'none'; form-action 'none'"  # fmt: skip


def _script_json(data: Mapping[str, Any]) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def bullet_list(lines: Sequence[str]) -> str:
    """Notes as an HTML list; empty without notes."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="gaps">{items}</ul>' if items else ""


def definition_list(values: Mapping[str, Any]) -> str:
    """Nested settings as nested definition lists."""
    if not values:
        return "<p>Not recorded.</p>"
    items = "".join(f"<dt>{escape(str(key))}</dt><dd>{_definition(value)}</dd>" for key, value in values.items())
    return f'<dl class="details">{items}</dl>'


def _definition(value: object) -> str:
    if value is None or value == "" or value == {} or value == []:
        return MISSING
    if isinstance(value, Mapping):
        return definition_list(value)
    if isinstance(value, (list, tuple)):
        return escape(", ".join(str(item) for item in value))
    return escape(str(value))


def sortable_table(
    name: str, label: str, headers: Sequence[str], lines: Sequence[Sequence[Text]], style: str = ""
) -> str:
    """A sortable table; its headers are buttons, so that the keyboard works too."""
    head = "".join(f'<th scope="col"><button type="button">{_head(text)}</button></th>' for text in headers)
    body = "".join(_line(cells) for cells in lines)
    styled = f' class="{style}"' if style else ""
    # Focusable, because a wide table scrolls inside its box.
    return (
        f'<div class="scroll" role="region" aria-label="{escape(label)}" tabindex="0"><table id="{name}"{styled}>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _head(text: str) -> str:
    name, bracket, unit = text.partition(" (")
    return f"{escape(name)}<small>{escape(bracket + unit)}</small>"


def _line(cells: Sequence[Text]) -> str:
    lost = ' class="lost"' if DIVERGED_MARK in cells else ""
    first, *others = (_cell(cell) for cell in cells)
    return f'<tr{lost}><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>'


def _cell(cell: Text) -> str:
    if isinstance(cell, tuple):
        text, mark = cell
        inner = _cell(text)
        return {"best": f"<b>{inner}</b>", "second": f"<u>{inner}</u>"}.get(mark, inner)
    if isinstance(cell, Html):
        return cell
    text = cell
    if text == DIVERGED_MARK:
        return f'{DIVERGED_MARK}<span class="unseen"> diverged</span>'
    if text.endswith("*"):
        return f'{escape(text[:-1])}<abbr title="undetermined">*</abbr>'
    return escape(text)
