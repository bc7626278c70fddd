"""The audit page as text: complete, in order, escaped, and silent about what is missing."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from gradpivot.report.audit.page import render_audit
from gradpivot.report.common import markup
from gradpivot.results import QUESTIONS, AuditRecord, AuditVerdict
from made_audit import made_attacks, made_audit, made_sections, roc

EVIL = '</script><script>alert(1)</script><img src=x onerror="alert(2)">$title'

HEADINGS = (
    "Is a record recognisable as having been trained on?", "Does forgotten knowledge return?", "Is the rest intact?",
    "How to read this", "Threat model", "All attacks", "ROC curves of the membership attacks", "Tampering",
    "Where the forgotten records went", "Accuracy per class", "Forgotten records", "Most harmed retained records",
    "Before and after", "Calibration", "What was not tested", "Problem and provenance",
)  # fmt: skip


class Tags(HTMLParser):
    """Tags with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(text)
    return parser.found


def own_text(record: AuditRecord) -> str:
    """The page without the vendored library."""
    return render_audit(record).replace(markup.read_asset("common/vendor/plotly-basic.min.js"), "")


def headings(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"<h2[^>]*>([^<]*)</h2>", text))


def evil_audit() -> AuditRecord:
    """Hostile text wherever a user, a file or another program can put it."""
    curve = {"x": [1, 2], "x_label": EVIL, "audited": [0.1, 0.2]}
    hostile = {
        "title": EVIL,
        "meaning": EVIL,
        "note": EVIL,
        "unit": EVIL,
        "details": {"curve": curve, "roc": {"audited": roc(1)}},
    }
    sections = made_sections()
    for row in (*sections["records"], *sections["harmed"], *sections["examples"]):
        row.update(index=EVIL, label=EVIL, predicted=EVIL, image=f'data:image/png;base64,AA"{EVIL}')
    for row in sections["examples"]:
        row["audited"] = {"predicted": EVIL, "confidence": EVIL}
    sections["neighbours"]["classes"] = [EVIL] * 10
    sections["classes"] = [{**row, "class": EVIL, "n": EVIL} for row in sections["classes"]]
    sections["calibration"] = {EVIL: 0.1}
    verdict = AuditVerdict(question=EVIL, outcome=EVIL, sentence=EVIL)  # type: ignore[arg-type]
    return made_audit(
        attacks=tuple(replace(found, **hostile) for found in made_attacks()), level=EVIL, sections=sections,
        problem={"name": EVIL, "classes": [EVIL], EVIL: EVIL}, not_tested={EVIL: EVIL},
        provenance={EVIL: {EVIL: [EVIL]}}, verdicts=dict.fromkeys(QUESTIONS, verdict),
    )  # fmt: skip


def test_the_sections_come_in_order() -> None:
    assert headings(own_text(made_audit())) == HEADINGS


def test_the_cards_give_outcome_and_number() -> None:
    text = own_text(made_audit())
    for sign, outcome in (("=", "indistinguishable"), ("≠", "distinguishable"), ("?", "undetermined")):
        assert f'<span class="outcome {outcome}"><b aria-hidden="true">{sign}</b> {outcome}</span>' in text
    assert "Fine-tuning on retained data: 23.1 % [19.1, 27.1], retrained 0.4 %, original 98.0 %." in text


def test_an_attack_shows_everything_a_reader_needs() -> None:
    text = own_text(made_audit())
    row = next(row for row in re.findall(r"<tr>.*?</tr>", text) if "Scaled-margin attack, TPR" in row)
    cells = [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td>(.*?)</td>", row)]
    assert cells == ["2.1 % [0.4, 6.0]", "1.1 %", "9.3 %", "+1.0 ± 2.1 pp", "1.5, 10.0 pp", "292", "–"]
    assert "<small>only 36 unseen records" in row
    assert "+0.209 ± 0.021 nats" in text


def test_how_to_read_has_ten_lines() -> None:
    (reading,) = re.findall(r'<ol class="lines">(.*?)</ol>', own_text(made_audit()))
    assert reading.count("<li>") == 10


@pytest.mark.parametrize("name", sorted(made_sections()))
@pytest.mark.parametrize("empty", [False, True], ids=["absent", "empty"])
def test_a_missing_section_is_left_out(name: str, empty: bool) -> None:
    sections = {key: value for key, value in made_sections().items() if key != name}
    shown = headings(own_text(made_audit(sections={**sections, name: None} if empty else sections)))
    assert len(shown) == len(HEADINGS) - 1
    assert set(shown) < set(HEADINGS)


def test_an_almost_empty_audit_has_a_page() -> None:
    record = made_audit(attacks=(), verdicts={}, sections={}, provenance={}, problem={}, not_tested={})
    assert headings(own_text(record)) == ("How to read this",)


def test_models_that_were_not_given_are_left_out() -> None:
    sections = made_sections()
    rows = [{**row, "retrained": None, "image": None} for row in sections["classes"]]
    examples = [{**row, "retrained": None, "image": None} for row in sections["examples"]]
    text = own_text(made_audit(attacks=(), sections={"classes": rows, "examples": examples}))
    assert "Change is audited minus original." in text
    assert "<dt>Retrained</dt>" not in text
    assert "<img" not in text


def test_text_cannot_leave_its_place() -> None:
    text = render_audit(evil_audit())
    found = tags(text)
    assert sum(tag == "script" for tag, _ in found) == 3
    assert not any(tag == "img" for tag, _ in found)
    assert not any(name.startswith("on") for _, attributes in found for name in attributes)
    own = text.replace(markup.read_asset("common/vendor/plotly-basic.min.js"), "")
    assert "<script>alert" not in own
    assert headings(own) == HEADINGS


@pytest.mark.parametrize(
    "image", ["https://example.org/a.png", "data:text/html;base64,AAAA", "data:image/svg+xml,<svg>", 3]
)
def test_only_inline_bitmaps_are_shown(image: object) -> None:
    record = {"index": 1, "label": 3, "confidence": 0.5, "margin": 0.1, "score": 1.0, "image": image}
    text = own_text(made_audit(sections={"records": [record]}))
    assert "<img" not in text
    assert "Forgotten records" in text


def test_nothing_is_fetched_and_only_our_scripts_may_run() -> None:
    text = render_audit(made_audit())
    sources = {a["src"] for tag, a in tags(text) if "src" in a}
    assert all(source is not None and source.startswith("data:image/png;base64,") for source in sources)
    assert not any({"href", "srcset", "action", "poster"} & a.keys() for _, a in tags(text))
    assert "</script" not in markup.read_asset("audit/page.js").lower()
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert markup.security_policy(*scripts) in text
