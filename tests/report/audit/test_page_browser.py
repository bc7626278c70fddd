"""The audit page in a browser: both widths, both themes, hostile names, and on paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradpivot.report.audit.files import write_audit
from gradpivot.results import AuditRecord
from made_audit import made_audit, made_sections

Open = Callable[..., Any]

pytestmark = pytest.mark.slow  # a real browser

CHARTS = ("roc-0", "roc-1", "roc-2", "curve-0", "curve-1", "bar-0")
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
LONG = "a_name_that_does_not_want_to_end_" * 5


@pytest.fixture
def open_audit(visit: Any, tmp_path: Path) -> Open:
    """Write and open an audit; the page may not fetch or complain."""

    def go(record: AuditRecord, **options: Any) -> Any:
        return visit(write_audit(record, tmp_path)[1], **options)

    return go


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_and_all_charts_are_drawn(open_audit: Open, width: int) -> None:
    tab = open_audit(made_audit(), width=width)
    assert tab.evaluate(OVERFLOW) == 0
    for name in CHARTS:
        assert tab.locator(f"#{name} .main-svg").count() > 0, name
        assert tab.locator(f"#{name} .scatterlayer .js-line, #{name} .barlayer .point").count() > 0, name
    assert tab.evaluate("document.getElementById('roc-0').layout.xaxis.type") == "log"
    assert tab.evaluate("[...document.images].every((image) => image.naturalWidth === 8)")
    assert tab.locator("#roc-key li").all_inner_texts() == ["Audited", "Retrained", "Original"]


def test_long_names_do_not_widen_the_page(open_audit: Open) -> None:
    sections = made_sections()
    for row in (*sections["examples"], *sections["records"]):
        row["label"] = LONG
    sections["neighbours"]["classes"] = [LONG] * 10
    record = made_audit(problem={"name": LONG}, sections=sections, not_tested={LONG: LONG}, provenance={LONG: LONG})
    assert open_audit(record, width=390).evaluate(OVERFLOW) == 0


def test_the_attacks_sort_by_difference(open_audit: Open) -> None:
    tab = open_audit(made_audit())
    head = tab.locator("#attacks-membership thead button").nth(4)
    head.click()
    first = tab.locator("#attacks-membership tbody tr").first.inner_text()
    assert first.startswith("Entropy attack")
    head.click()
    assert tab.locator("#attacks-membership tbody tr").first.inner_text().startswith("Scaled-margin attack, AUC")


def test_it_prints_on_a4(open_audit: Open, tmp_path: Path) -> None:
    tab = open_audit(made_audit(), color_scheme="dark")
    content = tab.pdf(path=tmp_path / "audit.pdf", format="A4")
    assert content.startswith(b"%PDF-")
    assert 3 <= content.count(b"/Type /Page\n") <= 12
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    tab.emulate_media(media="print")
    # A4 without its margins is 688 pixels wide.
    tab.set_viewport_size({"width": 688, "height": 900})
    assert tab.evaluate(OVERFLOW) == 0
    for name in CHARTS:
        box, drawn = tab.locator(f"#{name}").bounding_box(), tab.locator(f"#{name} .main-svg").first.bounding_box()
        assert drawn["height"] <= box["height"] + 1, name
        assert drawn["x"] + drawn["width"] <= 688, name
    wide = (
        "[...document.querySelectorAll('table')].filter((t) => t.getBoundingClientRect().right > 690).map((t) => t.id)"
    )
    assert tab.evaluate(wide) == []


def test_hostile_names_are_only_text(open_audit: Open) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    sections = made_sections()
    sections["neighbours"]["classes"] = [evil] * 10
    tab = open_audit(made_audit(problem={"name": evil}, sections={"neighbours": sections["neighbours"]}))
    assert evil in tab.inner_text("h1")
    assert tab.locator("img").count() == 0


def test_an_audit_without_charts_is_ready_too(open_audit: Open) -> None:
    tab = open_audit(made_audit(attacks=(), verdicts={}, sections={}, provenance={}, problem={}, not_tested={}))
    assert tab.locator(".chart").count() == 0
