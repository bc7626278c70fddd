"""Pieces of self-contained pages: inlined parts, the Content Security Policy, tables that sort, escaping."""

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

from gradpivot.report.common.tables import LOST
from gradpivot.runtime import replacing

__all__ = ["filled_page", "listing", "part", "policy", "sortable_table", "write_html"]

Text = str | tuple[str, str]
"""A cell: its text, or its text with the mark ``best`` or ``second``."""


def filled_page(name: str, title: str, data: Mapping[str, Any], **texts: str) -> str:
    """A whole page in one file that makes no request: ``name/page.html`` filled in, with its script and the charts.

    Args:
        name: Whose page: ``run``, ``standings`` or ``generators``.
        title: As text.
        data: What the script draws.
        texts: What the page's other placeholders stand for, as HTML.
    """
    plotly, script = (part("common/vendor/plotly-basic.min.js"), part("common/charts.js") + part(f"{name}/page.js"))
    return Template(part("common/frame.html")).substitute(
        policy=policy(plotly, script),
        style=part("common/page.css"),
        title=escape(title),
        body=Template(part(f"{name}/page.html")).substitute(title=escape(title), **texts),
        data=_script_json(data),
        plotly=plotly,
        script=script,
    )


def write_html(path: str | Path, text: str) -> Path:
    """Write a page; a reader sees the old file or the new one, never half of one."""
    with replacing(path) as draft:
        draft.write_bytes(text.encode("utf-8", "replace"))
    return Path(path)


def part(name: str) -> str:
    """A file of this package that goes into a page."""
    return resources.files("gradpivot.report").joinpath(name).read_text(encoding="utf-8")


def policy(*scripts: str) -> str:
    """No request of any kind, and no script but ours."""
    digests = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # Plotly styles its drawings with style attributes and rules, which hashes cannot name.
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; " \
        "base-uri 'none'; form-action 'none'"  # fmt: skip


def _script_json(data: Mapping[str, Any]) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def listing(lines: Sequence[str]) -> str:
    """What is missing or to be known, as a list; nothing if there is nothing."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="gaps">{items}</ul>' if items else ""


def sortable_table(
    name: str, label: str, heads: Sequence[str], lines: Sequence[Sequence[Text]], style: str = ""
) -> str:
    """A table whose heads are buttons, so that the keyboard can sort as well."""
    head = "".join(f'<th scope="col"><button type="button">{_head(text)}</button></th>' for text in heads)
    body = "".join(_line(cells) for cells in lines)
    styled = f' class="{style}"' if style else ""
    # Focusable, because a wide table scrolls inside its own box.
    return (
        f'<div class="scroll" role="region" aria-label="{escape(label)}" tabindex="0"><table id="{name}"{styled}>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _head(text: str) -> str:
    name, bracket, unit = text.partition(" (")
    return f"{escape(name)}<small>{escape(bracket + unit)}</small>"


def _line(cells: Sequence[Text]) -> str:
    lost = ' class="lost"' if LOST in cells else ""
    first, *others = (_cell(cell) for cell in cells)
    return f'<tr{lost}><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>'


def _cell(cell: Text) -> str:
    if isinstance(cell, tuple):
        text, mark = cell
        inner = _cell(text)
        return {"best": f"<b>{inner}</b>", "second": f"<u>{inner}</u>"}.get(mark, inner)
    text = cell
    if text == LOST:
        return f'{LOST}<span class="unseen"> diverged</span>'
    if text.endswith("*"):
        return f'{escape(text[:-1])}<abbr title="undetermined">*</abbr>'
    return escape(text)
