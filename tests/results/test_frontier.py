from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.generators.scores import Frechet, GenerationScores
from gradpivot.evaluate.scores import Scores, wilson_interval
from gradpivot.results.comparison import Comparison
from gradpivot.results.frontier import Frontier, Point
from gradpivot.results.pareto import epsilon_to, hypervolume, nondominated
from gradpivot.results.selection import Condition, check_metric, parse_conditions

shares = st.floats(0, 1).map(lambda x: round(x, 3))
clouds = st.lists(st.tuples(shares, shares, shares, shares), min_size=1, max_size=6)


def scores(ra: float, ua: float, ta: float = 0.9, mia: float = 0.8) -> Scores:
    return Scores(
        ra=ra, ua=ua, ta=ta, mia=mia, mia_svc=mia, mia_svc_accuracy=0.7, mia_svc_determined=True,
        n_forget=100, n_retain=900, n_test=200,
    )  # fmt: skip


def point(ra: float, ua: float, knob: float | None = None, **more: object) -> Point:
    return Point(label=f"CUP(gamma={knob})", settings={"gamma": knob}, scores=scores(ra, ua), knob=knob, **more)


def frontier(*points: Point, **more: object) -> Frontier:
    return Frontier(name="CUP", method="cup", knob="gamma", points=list(points), **more)


def by_inclusion_exclusion(vectors: list[tuple[float, ...]]) -> float:
    """The volume of a union of boxes at the origin: the oracle."""
    total = 0.0
    for size in range(1, len(vectors) + 1):
        for chosen in itertools.combinations(vectors, size):
            total += (-1) ** (size + 1) * math.prod(min(column) for column in zip(*chosen, strict=True))
    return total


@settings(deadline=None)
@given(clouds)
def test_hypervolume_is_exact_in_four_dimensions(vectors):
    assert hypervolume(vectors) == pytest.approx(by_inclusion_exclusion(vectors), abs=1e-12)


@given(clouds, st.tuples(shares, shares, shares, shares))
def test_hypervolume_never_falls_with_another_point(vectors, more):
    assert hypervolume([*vectors, more]) >= hypervolume(vectors) - 1e-12


def test_hypervolume_of_the_papers_retrained_model():
    assert 100 * hypervolume([(1, 1, 0.9488, 1)]) == pytest.approx(94.88)
    assert hypervolume([]) == 0
    assert hypervolume([(0, 0, 0, 0)]) == 0
    with pytest.raises(ValueError, match="finite"):
        hypervolume([(math.nan, 1)])


@given(clouds)
def test_nondominated_matches_the_definition(vectors):
    points = np.array(vectors)
    beaten = [any((q >= p).all() and (q > p).any() for q in points) for p in points]
    assert nondominated(vectors) == [not b for b in beaten]


def test_epsilon_indicator():
    front = [(1.0, 0.5), (0.5, 1.0)]
    assert epsilon_to(front, front) == 0
    assert epsilon_to([(0.9, 0.5), (0.5, 0.8)], front) == pytest.approx(0.2)


def test_distance_and_hypervolume_of_a_frontier():
    f = frontier(point(1.0, 0.2, 0.1), point(0.9, 1.0, 0.9), reference=scores(1.0, 1.0))
    assert f.distance() == pytest.approx(0.1)
    assert f.distance(scores(1.0, 0.2)) == 0
    assert f.hypervolume(("ra", "ua")) == pytest.approx(1.0 * 0.2 + 0.9 * 0.8)
    with pytest.raises(GradPivotError, match="needs a reference"):
        frontier(point(1, 1)).distance()
    with pytest.raises(GradPivotError, match="no points"):
        frontier(reference=scores(1, 1)).distance()


def test_random_forgetting_is_judged_by_its_gap():
    reference = scores(1.0, 0.05, 0.9, 0.2)
    f = frontier(point(1.0, 0.05), point(0.9, 0.9), kind="random", reference=reference)
    assert f.vectors(("ra", "ua"))[0] == (1, 1)
    assert f.vectors(("ra", "ua"))[1] == pytest.approx((0.9, 0.15))
    with pytest.raises(GradPivotError, match="gap to a retrained"):
        frontier(point(1, 1), kind="random").hypervolume()


def test_mia_takes_no_part_for_records():
    reference = scores(0.9, 0.1, mia=0.3)
    near, far = (replace(point(0.9, 0.2), scores=scores(0.9, 0.2, mia=mia)) for mia in (0.3, 0.9))
    for chosen in (near, far):
        f = frontier(chosen, kind="random", reference=reference)
        assert f.metrics == ("ra", "ua", "ta")
        assert f.distance() == pytest.approx(0.1)
        assert f.to_dict()["hypervolume"] == f.to_dict()["hypervolume_without_mia"]
    assert frontier(far, reference=reference).distance() > 0.5


def test_records_are_picked_by_their_auc_on_either_side():
    def at(auc: float) -> Point:
        return Point(label=f"at {auc}", settings={}, scores=replace(scores(1, 0.5), more=(("auc", auc),)))

    f = frontier(at(0.7), at(0.48), at(0.3), kind="random")
    assert f.pick("AUC<=55").label == "at 0.48"
    assert f.pick("UA>=10", best="auc").label == "at 0.48"
    with pytest.raises(GradPivotError, match="unknown score 'AUC'"):
        frontier(at(0.5)).pick("AUC<=55")


def test_diverged_runs_count_as_nothing_and_are_never_picked():
    lost = Point(label="x", settings={}, scores=Scores.of_diverged(), diverged={"step": 3, "reason": "nan"})
    f = frontier(point(1.0, 0.2), lost, kind="random", reference=scores(0.0, 0.0, 0.0, 0.0))
    assert f.vectors()[1] == (0, 0, 0)
    assert lost not in f.nondominated()
    with pytest.raises(GradPivotError, match="lower lr or set max_norm"):
        frontier(lost).pick("UA>=0")


def test_scores_are_named_as_in_the_tables():
    assert check_metric("MIA-SVC") == check_metric("mia_svc") == "mia_svc"
    assert str(parse_conditions("MIA-SVC>=5")[0]) == "MIA-SVC>=5"
    with pytest.raises(GradPivotError, match=r"unknown score 'UX'. Choose from RA, UA, TA, MIA, MIA-SVC"):
        parse_conditions("UX>=5")


def test_picks_by_condition():
    f = frontier(point(0.99, 0.9, 0.3), point(0.98, 0.96, 0.5), point(0.90, 1.0, 0.9))
    assert f.pick("UA>=95", best="RA").knob == 0.5
    assert f.pick({"ua": 0.95}).knob == 0.5
    assert f.pick("UA>=50 and RA>=98.5").knob == 0.3
    assert f.pick("RA>=80", best="ua").knob == 0.9
    with pytest.raises(GradPivotError, match=r"no point of CUP meets UA>=95, RA>=99; the nearest is .*gamma=0\.5"):
        f.pick("UA>=95, RA>=99")
    with pytest.raises(GradPivotError, match="unknown score 'acc'"):
        f.pick("UA>=95", best="acc")


def test_ninety_five_percent_of_twenty_samples_is_enough():
    assert Condition("ua", ">=", 0.95).holds(scores(1, 1 - 1 / 20))
    assert Condition("ua", "<=", 0.05).holds(scores(1, 1 - 19 / 20))


@pytest.mark.parametrize("text", ["UA=95", "95", "UA>=", "UA>=95 RA>=3", ""])
def test_conditions_that_cannot_be_read(text):
    with pytest.raises(GradPivotError, match="for example"):
        parse_conditions(text)


def test_conditions_out_of_range():
    with pytest.raises(GradPivotError, match="unknown score 'ACC'"):
        parse_conditions("ACC>=95")
    with pytest.raises(GradPivotError, match="between 0 and 100"):
        parse_conditions("UA>=950")
    with pytest.raises(GradPivotError, match="mappings in fractions"):
        parse_conditions({"ua": 95})


def test_everything_survives_json(tmp_path):
    f = frontier(point(0.9, 0.8, 0.1, history={"cosine": [None, 0.5]}, seconds=1.5), reference=scores(1, 1))
    comparison = Comparison(
        title="t", problem={"name": "digits"}, original=point(1, 0), retrained=point(1, 1), frontiers=[f],
        provenance={"seed": 0},
    )  # fmt: skip
    path = tmp_path / "results.json"
    path.write_text(json.dumps(comparison.to_dict(), allow_nan=False))
    assert Comparison.load(path).to_dict() == comparison.to_dict()


@pytest.mark.parametrize("content", ["", "{}", '{"schema": "other"}', "[1]", '{"schema": "gradpivot.results/1"}'])
def test_files_that_are_no_results(tmp_path, content):
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(GradPivotError):
        Comparison.load(path)
    with pytest.raises(GradPivotError, match="no file"):
        Comparison.load(tmp_path / "none.json")


def test_wilson_interval():
    low, high = wilson_interval(0.5, 100)
    assert (low, high) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson_interval(1.0, 50)[1] == 1.0
    assert 0.9 < wilson_interval(1.0, 50)[0] < 1.0
    assert wilson_interval(0.3, 0) == (0, 1)
    assert scores(0.9, 0.5).interval("ua") == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert scores(0.9, 0.5).vector() == tuple(getattr(scores(0.9, 0.5), m) for m in ("ra", "ua", "ta", "mia"))


@pytest.mark.parametrize("share", ["NaN", "Infinity", '"x"', "null", "5", "-0.5"])
def test_scores_that_are_no_shares_are_refused(tmp_path, share):
    original = Comparison(title="t", problem={}, original=point(1, 0), frontiers=[])
    path = tmp_path / "results.json"
    path.write_text(json.dumps(original.to_dict()).replace('"ra": 1', f'"ra": {share}'))
    with pytest.raises(GradPivotError, match="not a results file"):
        Comparison.load(path)


def generator_point(fid: float, right: int, gamma: float) -> Point:
    told = GenerationScores(
        called=((90, 10), (100 - right, right)),
        asked=(0, 1),
        forgotten=(1,),
        classifier_accuracy=0.99,
        frechet=(Frechet(fid, "pixels", 100, 1000),),
        rescale=10.0,
    )
    return Point(label=f"CUP(gamma={gamma})", settings={}, scores=told, knob=gamma)


def test_a_frontier_of_generators_is_judged_by_fidelity_and_ua():
    points = [generator_point(1.0, 90, 0.1), generator_point(4.0, 10, 0.9)]
    reference = generator_point(0.0, 0, 0).scores
    found = Frontier(name="CUP", method="cup", points=points, reference=reference)
    assert found.metrics == ("fidelity", "ua")
    assert found.vectors() == [(0.9, pytest.approx(0.1)), (0.6, pytest.approx(0.9))]
    assert found.hypervolume() == pytest.approx(0.6 * 0.9 + 0.3 * 0.1)
    assert found.distance() == pytest.approx(math.hypot(0.4, 0.1))
    assert found.pick("UA>=50", best="ra") is points[1]
    again = Frontier.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again == replace(found, points=[replace(p, history={}) for p in points])
    with pytest.raises(GradPivotError, match="is a generator"):
        _ = points[0].classification


def test_an_undetermined_mia_of_the_reference_takes_no_part():
    chance = replace(scores(1, 1, mia=0.1), mia_accuracy=0.52, mia_determined=False)
    known = frontier(point(0.9, 0.8), point(0.6, 1.0), reference=chance)
    assert known.metrics == ("ra", "ua", "ta")
    assert known.hypervolume() == known.hypervolume(("ra", "ua", "ta")) == known.to_dict()["hypervolume_without_mia"]
    assert known.distance() == pytest.approx(math.hypot(0.1, 0.2))
    assert frontier(point(0.9, 0.8)).distance(chance) == pytest.approx(math.hypot(0.1, 0.2))
    again = Frontier.from_dict(json.loads(json.dumps(known.to_dict())))
    assert (again.metrics, again.hypervolume()) == (known.metrics, known.hypervolume())
    sure = replace(known, reference=replace(chance, mia_determined=True))
    assert sure.metrics == ("ra", "ua", "ta", "mia")
    assert sure.distance() > known.distance()


def test_a_comparison_has_the_metrics_of_its_retrained_model():
    model = Point(label="", settings={}, scores=replace(scores(1, 1), mia_determined=False))
    known = Comparison(title="", problem={}, original=point(1, 0), retrained=model, frontiers=[frontier(point(1, 1))])
    assert (known.metrics, known.undetermined) == (("ra", "ua", "ta"), ("mia",))
    assert replace(known, retrained=None).undetermined == ()
