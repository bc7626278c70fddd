"""HTML of the audit page's sections. Each returns an empty string if the record has no data for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from gradpivot.report.audit.wording import (
    HOW_TO_READ,
    OUTCOME_SIGNS,
    ROLES,
    THREATS,
    difference_text,
    noise_text,
    value_text,
)
from gradpivot.report.common.markup import Html, definition_list, sortable_table
from gradpivot.report.common.wording import MISSING, is_number, number, percent
from gradpivot.results import QUESTIONS, AuditRecord, Finding

__all__ = [
    "attack_section",
    "bar_section",
    "calibration_section",
    "chart_section",
    "class_section",
    "example_section",
    "harmed_section",
    "not_tested_section",
    "provenance_section",
    "reading_section",
    "record_section",
    "threat_section",
    "verdict_cards",
]  # fmt: skip

MAX_RECORDS = 20
"""Most records in the table; ``audit.json`` has all of them."""

_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*")


def verdict_cards(record: AuditRecord) -> str:
    """One card per question: the outcome as a word, a sign and a colour, and the sentence behind it."""
    cards = []
    for name, question in QUESTIONS.items():
        if verdict := record.verdicts.get(name):
            cards.append(
                f'<article class="card {_outcome_class(verdict.outcome)}"><h2>{escape(question)}</h2>'
                f"<p>{_outcome(verdict.outcome)}</p><p>{escape(verdict.sentence)}</p></article>"
            )
    return f'<div class="cards">{"".join(cards)}</div>' if cards else ""


def reading_section() -> str:
    """Ten lines on how to read the page."""
    items = "".join(f"<li>{escape(line)}</li>" for line in HOW_TO_READ)
    return _section("reading", "How to read this", f'<ol class="lines">{items}</ol>')


def threat_section(record: AuditRecord) -> str:
    """What the attacker has and wants, for each question with a verdict."""
    threats = {THREATS[name][0]: THREATS[name][1] for name in QUESTIONS if name in record.verdicts}
    return _section("threats", "Threat model", definition_list(threats)) if threats else ""


def attack_section(record: AuditRecord) -> str:
    """All attacks, one table per question."""
    tables = []
    for name, question in QUESTIONS.items():
        if found := [attack for attack in record.attacks if attack.question == name]:
            table = sortable_table(
                f"attacks-{name}", question, _ATTACK_HEADERS, [_attack(attack) for attack in found], "numbers attacks"
            )
            tables.append(f"<h3>{escape(THREATS[name][0])}</h3>{table}")
    note = "Attacks without an outcome are for information and do not decide."
    return _section("attacks", "All attacks", "".join(tables), note) if tables else ""


_ATTACK_HEADERS = (
    "Attack",
    "Audited (95 % interval)",
    "Control",
    "Original",
    "Difference (± error)",
    "Noise, margin",
    "n",
    "Outcome",
)


def _attack(found: Finding) -> list[str]:
    remarks = "".join(f"<small>{escape(text)}</small>" for text in (found.meaning, found.note) if text)
    return [
        Html(f"{escape(found.title)}{remarks}"),
        value_text(found),
        found.control_text,
        found.text(found.original),
        difference_text(found),
        noise_text(found),
        f"{found.n:,}",
        Html(_outcome(found.outcome)) if found.outcome else MISSING,
    ]


def chart_section(name: str, title: str, charts: Sequence[Mapping[str, Any]], note: str) -> str:
    """A grid of charts with one key; the page's script draws them into ``name-0``, ``name-1``, ….

    Args:
        name: ``roc`` or ``curve``.
        title: Heading.
        charts: From :mod:`gradpivot.report.audit.charts`.
        note: How to read the charts.
    """
    figures = "".join(
        f"<figure><h3>{escape(chart['title'])}</h3>{_chart(f'{name}-{i}', chart['title'], width=325)}</figure>"
        for i, chart in enumerate(charts)
    )
    key = f'<ul id="{name}-key" class="key"></ul>'
    return _section(name, title, f'{key}<div class="charts">{figures}</div>', note) if figures else ""


def bar_section(chart: Mapping[str, Any] | None) -> str:
    """Where the forgotten records go: predicted classes as grouped bars."""
    if chart is None:
        return ""
    title, note = "Where the forgotten records went", "Classes that the models predict for the forgotten records."
    if len(chart["classes"]) < chart["total"]:
        note += f" The {len(chart['classes'])} largest of {chart['total']} classes are drawn."
    figure = f"<figure>{_chart('bar-0', title, width=660)}</figure>"
    return _section("bar", title, f'<ul id="bar-key" class="key"></ul>{figure}', note)


def _chart(name: str, label: str, width: int) -> str:
    described = escape(label)
    return f'<div id="{name}" class="chart" data-print-width="{width}" role="img" aria-label="{described}"></div>'


def class_section(classes: Sequence[Mapping[str, Any]] | None) -> str:
    """Accuracy per class with the change to the retrained model (or to the original one without it)."""
    if not classes:
        return ""
    roles = [role for role in ROLES if any(is_number(row.get(role)) for row in classes)]
    base = next((role for role in ("retrained", "original") if role in roles), "")
    headers = ["Class", *(f"{ROLES[role]} (%)" for role in roles), *(["Change (pp)"] if base else []), "n"]
    lines = []
    for row in classes:
        name = Html(escape(_text(row, "class")) + ("<small>forgotten</small>" if row.get("forgotten") else ""))
        change = [_change(row.get("audited"), row.get(base))] if base else []
        lines.append([name, *(_percent(row.get(role)) for role in roles), *change, _text(row, "n")])
    table = sortable_table("classes", "Accuracy per class", headers, lines, "numbers compact")
    note = f"Accuracy on test data. Change is audited minus {base}." if base else "Accuracy on test data."
    return _section("classes-section", "Accuracy per class", table, note)


def record_section(records: Sequence[Mapping[str, Any]] | None) -> str:
    """The forgotten records, worst first as the record has them."""
    if not records:
        return ""
    shown = records[:MAX_RECORDS]
    headers = ("Record", "Image", "Label", "Confidence (%)", "Margin", "Score")
    lines = [
        [_text(row, "index"), _image(row), _text(row, "label"), _percent(row.get("confidence")),
         _number(row, "margin"), _number(row, "score")]
        for row in shown
    ]  # fmt: skip
    note = (
        "Most exposed first. The score is that of the attack with shadow or reference models, if one ran; otherwise "
        "the share of unseen records with a smaller margin."
    )
    if len(shown) < len(records):
        note += f" The first {len(shown)} of {len(records):,} are shown; audit.json has the others."
    return _section("records-section", "Forgotten records", _record_table("records", headers, lines), note)


def harmed_section(records: Sequence[Mapping[str, Any]] | None) -> str:
    """The retained records that lost most confidence."""
    if not records:
        return ""
    headers = ("Record", "Image", "Label", "Before (%)", "After (%)", "Predicted now")
    lines = [
        [_text(row, "index"), _image(row), _text(row, "label"), _percent(row.get("before")),
         _percent(row.get("after")), _text(row, "predicted")]
        for row in records[:10]
    ]  # fmt: skip
    note = (
        "Retained records that lost the most confidence in their label, compared with the original model (the "
        "retrained one if there is no original)."
    )
    return _section("harmed-section", "Most harmed retained records", _record_table("harmed", headers, lines), note)


def _record_table(name: str, headers: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    # A column of pictures that nobody has is left out.
    has_images = any(line[1] != MISSING for line in lines)
    kept = [i for i in range(len(headers)) if i != 1 or has_images]
    cells = [[line[i] for i in kept] for line in lines]
    return sortable_table(name, name.capitalize(), [headers[i] for i in kept], cells, "numbers compact")


def example_section(examples: Sequence[Mapping[str, Any]] | None) -> str:
    """Forgotten records with the prediction of each model."""
    cards = "".join(_example(example) for example in examples or ())
    note = "Predicted class and its confidence before unlearning, after it, and after retraining."
    return _section("examples", "Before and after", f'<div class="examples">{cards}</div>', note) if cards else ""


def _example(example: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<dt>{ROLES[role]}</dt><dd>{escape(_text(answer, 'predicted'))} "
        f"<small>{_percent(answer.get('confidence'))} %</small></dd>"
        for role in ("original", "audited", "retrained")
        if (answer := example.get(role))
    )
    picture = _image(example)
    shown = picture if picture != MISSING else ""
    label, index = escape(_text(example, "label")), escape(_text(example, "index"))
    heading = f"<h3>{label} <small>record {index}</small></h3>"
    return f'<article class="example">{shown}<div>{heading}<dl>{rows}</dl></div></article>'


def calibration_section(calibration: Mapping[str, Any] | None) -> str:
    """Expected calibration error of each model."""
    known = {role: value for role, value in (calibration or {}).items() if is_number(value)}
    if not known:
        return ""
    lines = [[ROLES.get(role, role), _percent(value)] for role, value in known.items()]
    table = sortable_table("calibration", "Calibration", ("Model", "ECE ↓ (%)"), lines, "numbers narrow")
    note = "Expected calibration error: mean gap between confidence and accuracy."
    return _section("calibration-section", "Calibration", table, note)


def not_tested_section(record: AuditRecord) -> str:
    """What was left out, and why."""
    if not record.not_tested:
        return ""
    return _section("untested", "What was not tested", definition_list(record.not_tested))


def provenance_section(record: AuditRecord) -> str:
    """The problem, hashes, seeds, machine, date and command."""
    parts = {"Problem": record.problem, "Provenance": record.provenance}
    lists = "".join(f"<h3>{name}</h3>{definition_list(values)}" for name, values in parts.items() if values)
    return _section("provenance", "Problem and provenance", lists) if lists else ""


def _section(name: str, title: str, body: str, note: str = "") -> str:
    below = f'<p class="sub">{escape(note)}</p>' if note else ""
    return (
        f'<section aria-labelledby="{name}-title"><h2 id="{name}-title">{escape(title)}</h2>{below}{body}</section>\n'
    )


def _outcome(outcome: str) -> str:
    sign = OUTCOME_SIGNS.get(outcome, "?")
    return f'<span class="outcome {_outcome_class(outcome)}"><b aria-hidden="true">{sign}</b> {escape(outcome)}</span>'


def _outcome_class(outcome: str) -> str:
    return outcome if outcome in OUTCOME_SIGNS else "undetermined"


def _image(row: Mapping[str, Any]) -> str:
    """A record's picture; anything but an inline bitmap is left out."""
    source = row.get("image")
    if not isinstance(source, str) or not _IMAGE.fullmatch(source):
        return MISSING
    return Html(f'<img class="record" src="{source}" alt="Record {escape(_text(row, "index"))}">')


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return MISSING if value is None else str(value)


def _percent(value: Any) -> str:
    return percent(value, 1) if is_number(value) else MISSING


def _number(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return number(value, 2) if is_number(value) else MISSING


def _change(after: Any, before: Any) -> str:
    if not is_number(after) or not is_number(before):
        return MISSING
    return f"{100 * (after - before):+.1f}".replace("+0.0", "0.0").replace("-0.0", "0.0")
