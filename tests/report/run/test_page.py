"""The page as text: self-contained, escaped, complete, and honest about what is missing."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from gradpivot.evaluate.scores import Scores
from gradpivot.report.common import markup
from gradpivot.report.common.wording import family, setting
from gradpivot.report.run.page import render_page, write_page
from gradpivot.report.run.view import history_view, missing_parts, payload, uphill_shares, verdict
from gradpivot.results.comparison import Comparison

EVIL = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'


class Reader(HTMLParser):
    """Tags with their attributes, and the text of each script."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and self.cdata_elem == "script":
            self.scripts[-1] += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


def own_text(text: str) -> str:
    """The page without the vendored library."""
    return text.replace(
        resources.files("gradpivot.report").joinpath("common/vendor/plotly-basic.min.js").read_text("utf-8"), ""
    )


def evil(build: Any) -> Comparison:
    whole = build()
    lost = {"step": EVIL, "reason": EVIL}
    points = [replace(p, label=EVIL, knob=None) for p in whole.frontiers[0].points]
    points[3] = replace(points[3], diverged=lost, scores=Scores.of_diverged())
    return build(
        title=EVIL,
        problem={"name": EVIL, "kind": "class", "classes": [EVIL], EVIL: EVIL},
        original=replace(whole.original, label=EVIL),
        frontiers=[replace(whole.frontiers[0], name=EVIL, points=points), *whole.frontiers[1:]],
        provenance={EVIL: {EVIL: [EVIL, EVIL]}},
    )


def test_the_page_has_its_parts(comparison: Comparison) -> None:
    text = own_text(render_page(comparison))
    for part in ('id="gamma-slider"', 'type="range"', 'id="gamma-value"', '<dl id="readout"', 'id="frontier-chart"',
                 'id="metrics-chart"', 'id="conflict-chart"', "<details>", 'http-equiv="Content-Security-Policy"',
                 "Digits without class 3", "gradpivot demo --forget 3", "best single threshold"):  # fmt: skip
        assert part in text, part


def test_the_verdict_is_one_sentence(comparison: Comparison) -> None:
    assert verdict(comparison) == (
        "CUP at γ = 0.6 forgets 99.3 % of class 3 and keeps 99.8 % of the rest; it is the closest of 3 methods to "
        "the retrained model (Δ 2.3 points)."
    )


def test_the_verdict_names_a_better_method(build: Any) -> None:
    cup, ws, _ = build().frontiers
    worse = replace(cup, points=cup.points[:3])
    assert "WS is closest to the retrained model" in verdict(build(frontiers=[worse, ws]))


def test_the_verdict_for_random_subsets_compares(build: Any) -> None:
    retrained = replace(build().retrained, scores=replace(build().retrained.scores, ua=0.05, mia=0.1))
    frontier = replace(build().frontiers[0], kind="random", reference=retrained.scores)
    comparison = build(problem={"kind": "random"}, retrained=retrained, frontiers=[frontier])
    assert "misclassifies 5.5 % of the forget set (retrained: 5.0 %)" in verdict(comparison)
    assert "Closest to the star is best." in render_page(comparison)


def test_text_cannot_leave_its_place(build: Any) -> None:
    text = render_page(evil(build))
    reader = read(text)
    assert len(reader.scripts) == 3
    assert not any(tag == "img" for tag, _ in reader.tags)
    assert not any(name.startswith("on") for _, attributes in reader.tags for name in attributes)
    data = json.loads(reader.scripts[0])
    assert data["frontiers"][0]["name"] == EVIL
    assert "alert(1)</script>" not in own_text(text)


def test_dollar_signs_and_templates_in_names_stay(build: Any) -> None:
    text = own_text(render_page(build(title="$title ${verdict} $$", provenance={"a": "$script"})))
    assert "<h1>$title ${verdict} $$</h1>" in text


def test_nothing_is_fetched(comparison: Comparison) -> None:
    text = render_page(comparison)
    for _, attributes in read(text).tags:
        assert not {"src", "href", "srcset", "action", "data", "poster"} & attributes.keys()
    own = own_text(text)
    urls = set(re.findall(r"https?://[^\s\"'<>]+", own))
    assert urls == {"http://www.w3.org/2000/svg"}  # the name of a namespace, not an address
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|import\(", own)


def test_only_our_scripts_may_run(comparison: Comparison) -> None:
    text = render_page(comparison)
    reader = read(text)
    policy = next(a["content"] for tag, a in reader.tags if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    script = next(part for part in policy.split(";") if "script-src" in part)
    assert "unsafe-inline" not in script
    assert markup.security_policy(*reader.scripts[1:]) == policy


def test_inlined_parts_cannot_end_their_element() -> None:
    for name in ("common/charts.js", "run/page.js", "standings/page.js", "common/vendor/plotly-basic.min.js"):
        part = markup.read_asset(name)
        assert "</script" not in part.lower()
        assert "<!--" not in part
        assert "\r" not in part  # the parser would rewrite it, and the hash would no longer match
    assert "</style" not in markup.read_asset("common/page.css").lower()


def test_numbers_that_json_does_not_know_become_null(build: Any) -> None:
    cup = build().frontiers[0]
    scores = replace(cup.points[0].scores, ra=math.nan, mia_svc=math.inf)
    history = {"step": [0, 1, 2], "cosine": [math.nan, None, 0.5], "delta_forget": [None], "delta_retain": [1.0]}
    point = replace(cup.points[0], scores=scores, seconds=math.inf, history=history)
    comparison = build(frontiers=[replace(cup, points=[point, *cup.points[1:]])])
    data = json.loads(json.dumps(payload(comparison), allow_nan=False))
    shown = data["frontiers"][0]["points"][0]
    assert shown["ra"] is None
    assert shown["more"] == [["MIA-SVC ↑", "–", ""]]
    assert shown["history"]["cosine"] == [None, None, 0.5]
    assert render_page(comparison)


def cases(build: Any) -> dict[str, Comparison]:
    cup, ws, ga = build().frontiers
    lost = {"scores": Scores.of_diverged(), "diverged": {"step": 1, "reason": "x"}, "history": {}}
    bare = [replace(f, reference=None) for f in (cup, ws, ga)]
    silent = replace(cup, points=[replace(p, history={}) for p in cup.points])
    return {
        "no retrained model": build(retrained=None, frontiers=bare),
        "varies γ": build(frontiers=[ws, ga]),
        "only one value of γ": build(frontiers=[replace(cup, points=cup.points[:1])]),
        "All runs diverged": build(frontiers=[replace(cup, points=[replace(p, **lost) for p in cup.points])]),
        "no run recorded its gradients": build(frontiers=[silent]),
        "No method has been run": build(frontiers=[], provenance={}, problem={}),
        "2 of 31 runs diverged": build(),
    }  # fmt: skip


CASES = ["no retrained model", "varies γ", "only one value of γ", "All runs diverged", "no run recorded its gradients",
         "No method has been run", "2 of 31 runs diverged"]  # fmt: skip


@pytest.mark.parametrize("gap", CASES)
def test_the_page_says_what_is_missing(gap: str, build: Any) -> None:
    comparison = cases(build)[gap]
    assert any(gap in line for line in missing_parts(comparison))
    assert gap in render_page(comparison)


def test_a_whole_comparison_has_no_gaps(build: Any) -> None:
    assert missing_parts(build(frontiers=build().frontiers[:2])) == []


def test_random_forgetting_without_a_reference_still_renders(build: Any) -> None:
    frontier = replace(build().frontiers[0], kind="random", reference=None)
    text = render_page(build(retrained=None, frontiers=[frontier], problem={"kind": "random"}))
    assert "and there is none" in text


def test_shares_of_steps_uphill() -> None:
    shares = uphill_shares({"delta_forget": [1.0, -1.0, -1.0, None], "delta_retain": [-1.0, 2.0, 0.0, 5.0]})
    assert shares == {"forget": 1 / 3, "retain": 1 / 3, "either": 2 / 3, "steps": 3}
    assert uphill_shares({"cosine": [0.1]}) is None
    assert uphill_shares({"delta_forget": [], "delta_retain": []}) is None


def test_long_histories_are_thinned_but_counted_whole() -> None:
    cosine = [-1.0 if t % 10 else 1.0 for t in range(5000)]
    view = history_view({"cosine": cosine})
    assert view is not None
    assert len(view["cosine"]) == len(view["step"]) == 500
    assert (view["every"], view["step"][1]) == (10, 10)
    assert view["conflict"] == pytest.approx(0.9)


def test_diverged_runs_have_no_scores_to_draw(comparison: Comparison) -> None:
    ga = payload(comparison)["frontiers"][2]["points"][-1]
    assert ga["ra"] is None
    assert ga["diverged"] == "diverged at step 22: loss is not finite"
    assert "✗<span" in render_page(comparison)


def test_the_table_marks_the_undetermined_svc(comparison: Comparison) -> None:
    assert '<abbr title="undetermined">*</abbr>' in render_page(comparison)


def test_writing_replaces_the_old_file_whole(comparison: Comparison, tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    assert write_page(comparison, path) == path
    assert path.read_text("utf-8") == render_page(comparison)
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_a_failed_write_leaves_the_old_file(
    comparison: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_page(comparison, path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def quick_trace_of_records(build: Any) -> Comparison:
    """Points on a line, each with its share of it, and no retrained model."""
    cup = build().frontiers[0]
    points = [replace(p, settings={**p.settings, "share": (p.knob or 0.0) ** 2}) for p in cup.points]
    line = replace(cup, points=points, reference=None, kind="random")
    recommended = {"recommended": {"reason": "CUP(gamma=0.4) is nearest with RA 99"}}
    problem = {"name": "digits", "kind": "random"}
    return build(retrained=None, problem=problem, frontiers=[line], provenance={"quick": recommended})


def test_a_quick_trace_is_one_line_along_gamma(build: Any) -> None:
    comparison = quick_trace_of_records(build)
    line = comparison.frontiers[0]
    assert {family(line, point) for point in line.points} == {""}
    point = next(p for p in line.points if p.knob == 0.5)
    assert setting(line, point) == "γ = 0.5, share = 0.25"


def test_a_quick_trace_of_records_recommends_without_a_retrained_model(build: Any) -> None:
    comparison = quick_trace_of_records(build)
    assert "CUP(gamma=0.4) is nearest with RA 99" in verdict(comparison)
    text = render_page(comparison)
    assert "random forgetting" in text
    assert "random-wise" not in text


def test_records_without_a_retrained_model_are_not_called_diverged(build: Any) -> None:
    told = verdict(replace(quick_trace_of_records(build), provenance={}))
    assert "there is none" in told
    assert "finite" not in told


def test_the_page_knows_which_attack_is_undetermined(comparison: Comparison) -> None:
    chance = replace(comparison.original, scores=replace(comparison.original.scores, mia_determined=False))
    original, retrained = payload(replace(comparison, original=chance))["models"]
    assert (original["undetermined"], retrained["undetermined"]) == (["mia"], [])
