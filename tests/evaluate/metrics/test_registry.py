"""A metric is one file: registering it is enough for scores, JSON, conditions, sweeps, tables, pages and help."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import math
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gradpivot import CUP, ForgetSplit, Scores, score, unlearn
from gradpivot.cli.parser import parse
from gradpivot.errors import GradPivotError
from gradpivot.evaluate import (
    Metric,
    find_metric,
    headline_metrics,
    metrics_digest,
    register_metric,
    scored_metrics,
    standing_metrics,
    steering_metrics,
    unregister_metric,
)
from gradpivot.report.common.tables import markdown, write_csv
from gradpivot.report.common.wording import meanings
from gradpivot.report.run.page import render_page
from gradpivot.report.run.view import payload
from gradpivot.report.standings.files import STANDINGS
from gradpivot.results import Comparison, Frontier, Record, parse_conditions, standings
from gradpivot.sweep import work
from gradpivot.sweep.cell import cells_of
from gradpivot.testing.problems import blobs, trained

HEAD = "Conf ↓<small> (%)</small>"
EXAMPLE = Path(__file__).parents[3] / "docs/examples/gradpivot_confidence.py"


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def described(**changes) -> Metric:
    settings = {"name": "some", "meaning": "Something.", "compute": lambda test: test.correct.mean()}
    return Metric(**{**settings, **changes})


@pytest.fixture
def add():
    """Registers a metric for one test."""
    added = []

    def register(metric: Metric) -> Metric:
        added.append(register_metric(metric).name)
        return metric

    yield register
    for name in added:
        unregister_metric(name)


@pytest.fixture
def confidence(add):
    """The example of docs/extending.md."""
    spec = importlib.util.spec_from_file_location("gradpivot_confidence", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return add(module.CONFIDENCE)


def test_ours_are_in_the_papers_order():
    assert standing_metrics() == ("ra", "ua", "ta", "mia")
    assert standing_metrics(attacks=False) == ("ra", "ua", "ta")
    assert set(steering_metrics()) == {
        "ra", "ua", "ta", "mia", "auc", "margin_auc", "rmia", "recovery", "relearn", "uncertainty",
    }  # fmt: skip
    assert [metric.symbol for metric in scored_metrics()] == ["RA", "UA", "TA", "MIA", "MIA-SVC"]


@pytest.mark.parametrize("kind", ["random", "index", "predicate"])
def test_records_have_their_own_headlines(kind):
    assert [metric.name for metric in headline_metrics(kind)] == ["ra", "ua", "ta", "auc", "uncertainty"]
    assert standing_metrics(kind) == standing_metrics(kind, attacks=False) == ("ra", "ua", "ta")
    # MIA is still computed.
    assert {"mia", "mia_svc", "auc"} <= {metric.name for metric in scored_metrics(kind)}
    assert [metric.name for metric in headline_metrics()] == [metric.name for metric in scored_metrics()]


def test_metrics_for_records_change_no_key_unless_they_are_foreign(add):
    before = metrics_digest()
    assert "auc" not in before
    add(Metric(name="ours", meaning="", compute=_mean_of_forget, on_request=True, headline="records"))
    assert metrics_digest() != before


def _mean_of_forget(forget):
    return float(forget.confidence.mean())


def test_a_two_sided_metric_is_bounded_on_both_sides():
    auc = find_metric("auc")
    assert auc.folded(0.4) == auc.folded(0.6) == pytest.approx(0.6)
    assert auc.range_text() == "between 50 and 100 %"
    assert auc.checked(0.2) == 0.2
    (condition,) = parse_conditions("AUC<=55", steering_metrics())
    assert [condition.holds(SimpleNamespace(auc=value)) for value in (0.44, 0.45, 0.5, 0.55, 0.56)] == [
        False, True, True, True, False,
    ]  # fmt: skip
    assert condition.miss(SimpleNamespace(auc=0.4)) == pytest.approx(0.05)
    with pytest.raises(GradPivotError, match="has no ideal"):
        Metric(name="sided", meaning="", compute=_mean_of_forget, two_sided=True)


def test_scores_have_it_and_json_brings_it_back(confidence):
    scores = score(trained(), split())
    assert 0.3 < scores.confidence <= 1
    told = json.loads(json.dumps(scores.to_dict()))
    assert told["confidence"] == scores.confidence
    assert Scores.from_dict(told) == scores
    assert pickle.loads(pickle.dumps(scores)) == scores
    assert scores.vector(("ua", "confidence")) == (scores.ua, scores.confidence)
    with pytest.raises(GradPivotError, match="has no Wilson interval"):
        scores.interval("confidence")


def test_a_value_of_a_metric_that_is_not_installed_is_kept(confidence):
    told = score(trained(), split()).to_dict()
    unregister_metric("confidence")
    try:
        assert Scores.from_dict(told).to_dict() == told
    finally:
        register_metric(confidence)


def test_an_older_record_has_no_value(confidence, record):
    scores = record().point.scores
    assert math.isnan(scores.confidence)
    assert "confidence" not in scores.to_dict()
    with pytest.raises(AttributeError, match="no 'confidenc'"):
        scores.confidenc  # noqa: B018


def test_a_condition_may_be_about_it(confidence):
    result = unlearn(trained(), split(), CUP(epochs=3, batch_size=8), until="CONFIDENCE<=60", keep="RA>=50")
    assert result.met
    assert result.seen.confidence <= 0.6
    assert "CONFIDENCE<=60 with RA>=50 is met" in result.verdict
    assert {c.metric: c.bound for c in result.targets.until} == {"confidence": 0.6}
    assert unlearn(trained(), split(), CUP(), until={"confidence": 1.0}).is_original


def test_a_sweep_records_it_and_compare_shows_it(confidence, lab):
    weights = work.original_weights(lab.setting, 0)
    records = [
        Record.from_dict(json.loads(json.dumps(work.run_cell(cell, lambda: weights).to_dict())))
        for cell in cells_of(lab.recipe, lab.setting)
        if cell.forget == "1"
    ]
    assert all(0 <= r.point.scores.confidence <= 1 for r in records)
    found = standings(records)
    assert "Conf ↓ (%)" in STANDINGS.markdown(found)
    lines = list(csv.DictReader(io.StringIO(STANDINGS.csv(found))))
    assert {line["unit"] for line in lines if line["measure"] == "confidence"} == {"%"}
    assert all("confidence" in row["measures"] for row in json.loads(STANDINGS.json(found))["tables"][0]["rows"])
    assert HEAD in STANDINGS.page(found)


def comparison(points) -> Comparison:
    frontier = Frontier(name="CUP", method="cup", points=points)
    return Comparison(title="T", problem={"kind": "class"}, original=points[0], frontiers=[frontier])


def test_tables_and_pages_of_a_run_show_it(confidence, record, tmp_path):
    old = record().point
    new = replace(old, scores=replace(old.scores, more=(("confidence", 0.125),)))
    made = comparison([new, old])
    assert "Conf ↓ (%)" in markdown(made)
    assert "12.50" in markdown(made)
    write_csv(made, tmp_path / "runs.csv")
    lines = list(csv.DictReader((tmp_path / "runs.csv").read_text("utf-8-sig").splitlines()))
    assert [line["Conf ↓ (%)"] for line in lines] == ["12.5", "12.5", ""]
    assert meanings(made)[5].what == confidence.meaning
    assert payload(made)["models"][0]["more"][1] == ["Conf ↓", "12.50 %", ""]
    assert HEAD in render_page(made)
    assert made.frontiers[0].pick("CONFIDENCE<=20", best="confidence") is new


def test_the_help_names_it(confidence, capsys):
    with pytest.raises(SystemExit):
        parse(["unlearn", "--help"])
    assert "CONFIDENCE in percent" in " ".join(capsys.readouterr().out.replace("│", "").split())


def test_an_entry_point_is_enough(tmp_path):
    """As installed: one module and the line of its package that names it; torch is not needed to know of it."""
    shutil.copy(EXAMPLE, tmp_path)
    info = tmp_path / "gradpivot_confidence-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gradpivot-confidence\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[gradpivot.metrics]\nconfidence = gradpivot_confidence\n")
    code = (
        "import sys; from gradpivot.evaluate import find_metric;"
        "print(find_metric('confidence').symbol, 'torch' in sys.modules)"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=True
    )
    assert done.stdout.split() == ["Conf", "False"]


def test_a_metric_in_another_unit_is_typed_as_it_is(add):
    def bits(forget):
        return float(8 * forget.confidence.mean())

    add(described(name="bits", compute=bits, direction="lower", ideal=0.0, most=math.inf, unit="bits"))
    assert str(unlearn(trained(), split(), CUP(), until="BITS<=8").targets) == "BITS<=8"
    with pytest.raises(GradPivotError, match=r"write BITS<=2\.5"):
        unlearn(trained(), split(), CUP(), until="BITS>=2.5")


def test_a_metric_may_take_part_in_h_and_delta(add, record):
    add(described(name="again", compute=lambda test: float(test.correct.mean()), in_standings=True))
    scores = score(trained(), split())
    assert scores.vector() == (scores.ra, scores.ua, scores.ta, scores.mia, scores.ta)
    point = replace(record().point, scores=scores)
    expected = scores.ra * scores.ua * scores.ta**2 * scores.mia
    assert Frontier(name="x", method=None, points=[point]).hypervolume() == pytest.approx(expected)


def test_what_reads_unseen_data_of_the_class_is_left_out_where_there_are_none(add):
    add(described(name="gone", compute=lambda unseen: float(unseen.correct.mean())))
    assert score(trained(), split()).gone > 0.5
    features, labels = blobs(seed=1).tensors
    without = ForgetSplit.by_class(blobs(), (features[labels != 0], labels[labels != 0]), 0)
    assert math.isnan(score(trained(), without).gone)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "ua"}, "taken by gradpivot.evaluate.metrics.accuracy"),
        ({"name": "vector"}, "'vector' is already an attribute of Scores"),
        ({"name": "n_test"}, "'n_test' is already an attribute of Scores"),
        ({"name": "Two words"}, "use lower-case letters"),
        ({"compute": lambda train: 0.0}, "has a parameter 'train'; .* may be forget, retain, test"),
        ({"in_standings": True, "direction": "lower"}, "cannot be used in H"),
        ({"compute": lambda relearned: 0.0}, "reads 'relearned', which takes more; set on_request=True"),
    ],
)
def test_what_cannot_be_registered(changes, message):
    with pytest.raises(GradPivotError, match=message):
        register_metric(described(**changes))


def test_a_value_out_of_range_is_refused(add):
    add(described(compute=lambda test: 1.5))
    with pytest.raises(GradPivotError, match=r"some is 1\.5; it must be between 0 and 100 %"):
        score(trained(), split())


def test_unknown_names_get_a_hint():
    with pytest.raises(GradPivotError, match="did you mean 'mia'"):
        find_metric("mai")


def test_a_diverged_run_counts_with_the_worst_of_every_metric(add):
    add(described(in_standings=True))
    add(described(name="other", direction="lower", most=3.0, unit="nats"))
    lost = Scores.of_diverged()
    assert lost.vector() == (0.0, 0.0, 0.0, 0.0, 0.0)
    assert (lost.some, lost.other) == (0.0, 3.0)
    assert Scores.from_dict(json.loads(json.dumps(lost.to_dict()))) == lost


def test_a_value_that_json_does_not_know_is_refused(add):
    add(described(most=math.inf, unit="nats", compute=lambda test: math.inf))
    with pytest.raises(GradPivotError, match="some is inf"):
        score(trained(), split())


def test_another_set_of_metrics_is_another_key(add):
    from gradpivot.runs.keys import record_key

    before = record_key("run", "cpu", None)
    add(described())
    assert record_key("run", "cpu", None) != before
