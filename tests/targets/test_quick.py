from __future__ import annotations

import copy
import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from gradpivot import CUP, WS, ForgetSplit, score, trace, unlearn
from gradpivot.dial.ramp import target_degree
from gradpivot.errors import GradPivotError
from gradpivot.runs.run import Prepared, Running
from gradpivot.targets import quick as lines
from gradpivot.targets.quick import NARROWEST, Cost, continuation, widest_gap
from gradpivot.tasks.classification import Classification
from gradpivot.testing.problems import blobs, trained
from memorised import doubt, memorised, records

FAST = CUP(epochs=5, batch_size=8)


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


@pytest.fixture(scope="module")
def line():
    return continuation(Prepared.of(trained(), split(), FAST), points=9)


def same(model, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))


def test_the_ends_are_the_original_and_the_run(line):
    run = unlearn(trained(), split(), CUP(gamma=1, epochs=5, batch_size=8))
    assert line.shares[0] == 0
    assert line.shares[-1] == 1
    assert same(line.results[0].model, trained())
    assert same(line.results[-1].model, run.model)
    assert line.results[-1].scores == run.scores
    assert line.results[0].scores == line.original == score(trained(), split())


def test_every_model_has_the_scores_that_stand_beside_it(line):
    assert len(line.results) == len(line.shares) == len({id(r.model) for r in line.results})
    for result in line.results:
        assert score(result.model, split()) == result.scores


def test_the_weights_between_lie_on_the_line(line):
    start, end = trained().state_dict(), line.results[-1].model.state_dict()
    for share, result in zip(line.shares, line.results, strict=True):
        for name, value in result.model.state_dict().items():
            if value.is_floating_point():
                torch.testing.assert_close(value, torch.lerp(start[name], end[name], share))


@pytest.mark.numeric
def test_the_points_are_in_order_and_their_gamma_asks_for_what_they_have_forgotten(line):
    assert list(line.shares) == sorted(line.shares)
    start = line.original.ua
    for result in line.results:
        wanted = start + (1 - start) * target_degree(result.method.gamma)
        assert wanted == pytest.approx(result.scores.ua, abs=1e-3)
    assert line.results[0].method.gamma == 0


def test_the_original_stays_and_the_same_seed_gives_the_same(line):
    model = trained()
    before = copy.deepcopy(model.state_dict())
    again = continuation(Prepared.of(model, split(), FAST), points=9)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert again.shares == line.shares
    assert [r.scores for r in again.results] == [r.scores for r in line.results]


def test_what_it_cost(line):
    assert line.cost.runs == 1
    assert line.cost.scored == len(line.results)
    # 40 forget, 80 retain and 80 test samples by forward passes; 5 epochs of 40 + 40 gradients.
    assert line.cost.scoring == pytest.approx(200 / 3 / 400)
    cost = Cost(runs=1, scored=10, scoring=0.25)
    assert cost.total == 3.5
    assert cost.of_sweep(20) == 25


def test_statistics_are_recomputed_only_where_the_policy_says_so():
    kept = continuation(Prepared.of(trained(), split(), FAST), points=3)
    recalibrated = CUP(epochs=5, batch_size=8, batchnorm="recalibrate")
    expected = continuation(Prepared.of(trained(), split(), recalibrated), points=3)
    original = trained().layers[1].running_mean
    assert torch.equal(kept.results[1].model.layers[1].running_mean, original)
    middle = expected.results[1].model
    kept = blobs().tensors[0][split().retain_indices]
    torch.testing.assert_close(middle.layers[1].running_mean, middle.layers[0](kept).mean(0))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=12))
def test_the_widest_gap_is_halved(seen):
    seen = sorted({point[0]: point for point in seen}.values())
    share = widest_gap(seen)
    apart = [
        (max(abs(b[1] - a[1]), abs(b[2] - a[2])), a[0], b[0])
        for a, b in itertools.pairwise(seen)
        if b[0] - a[0] > NARROWEST
    ]
    if share is None:
        assert all(width == 0 for width, _, _ in apart)
    else:
        assert max(apart)[0] in [width for width, low, high in apart if share == (low + high) / 2]


def test_halving_spreads_points_evenly_over_what_is_forgotten():
    """On a steep curve, where even shares would lie almost all on its two levels."""

    def curve(share: float) -> tuple[float, float, float]:
        ua = 1 / (1 + 2.0 ** (-40 * (share - 0.7)))
        return share, 1 - 0.1 * ua, ua

    seen = [curve(0.0), curve(1.0)]
    for _ in range(18):
        share = widest_gap(seen)
        assert share is not None
        seen = sorted([*seen, curve(share)])
    steps = [b[2] - a[2] for a, b in itertools.pairwise(seen)]
    even = [curve(i / 19)[2] for i in range(20)]
    assert max(steps) < 0.13
    assert max(b - a for a, b in itertools.pairwise(even)) > 0.3


def test_it_stops_where_there_is_nothing_in_between():
    assert widest_gap([(0.0, 1.0, 0.0), (1.0, 1.0, 0.0)]) is None
    assert widest_gap([(0.5, 1.0, 0.0), (0.5 + NARROWEST, 1.0, 1.0)]) is None


def test_what_it_refuses():
    with pytest.raises(GradPivotError, match="needs the dial"):
        continuation(Prepared.of(trained(), split(), WS()))
    with pytest.raises(GradPivotError, match="needs the dial"):
        continuation(Prepared.of(trained(), split(), CUP(dial="angle")))
    with pytest.raises(GradPivotError, match="2 or more"):
        continuation(Prepared.of(trained(), split(), CUP()), points=1)
    with pytest.raises(GradPivotError, match="chooses its own points"):
        trace(trained(), split(), CUP(), quick=True, gammas=(0.1,))
    with pytest.raises(GradPivotError, match="without quick"):
        trace(trained(), split(), CUP(), points=5)


def test_a_quick_trace_that_was_interrupted_does_not_run_again(tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    monkeypatch.setitem(Running.__init__.__kwdefaults__, "checkpoint_seconds", 0)
    whole = trace(trained(), split(), FAST, quick=True, points=4)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lines, "widest_gap", interrupt)
        with pytest.raises(KeyboardInterrupt):
            trace(trained(), split(), FAST, quick=True, points=4, checkpoint=path)
    assert path.exists()

    steps = []
    forgetting = Classification.forgetting

    def counted(self, *given):
        steps.extend([1] * torch.is_grad_enabled())
        return forgetting(self, *given)

    monkeypatch.setattr(Classification, "forgetting", counted)
    again = trace(trained(), split(), FAST, quick=True, points=4, checkpoint=path)
    assert not steps
    assert [r.scores for r in again.results] == [r.scores for r in whole.results]
    assert again.shares == whole.shares
    assert not path.exists()
    trace(trained(), split(), FAST, quick=True, points=4)
    assert steps
    with pytest.raises(GradPivotError, match="checkpoint was given without quick"):
        trace(trained(), split(), FAST, gammas=(0.1,), checkpoint=path)


@pytest.mark.numeric
def test_a_quick_trace_is_a_trace(tmp_path):
    traced = trace(trained(), split(), FAST, quick=True, points=6)
    assert len(traced.points) == len(traced.results) == len(traced.shares) <= 6
    assert traced.cost is not None
    assert traced.points[1].settings["share"] == traced.shares[1]
    assert "of the line" in traced.points[1].label
    assert traced.hypervolume() > 0
    best = traced.pick_result("UA>=0", best="UA")
    assert best.scores.ua == max(p.scores.ua for p in traced.points)
    traced.report(tmp_path / "report.html")
    assert "gamma-slider" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.numeric
def test_on_records_gamma_is_the_share_of_the_doubt_about_never_seen_data():
    split = records().with_validation()
    line = continuation(Prepared.of(memorised(), split, CUP(lr=0.1, epochs=10)), points=6)
    gammas = [result.method.gamma for result in line.results]
    start = doubt(memorised(), split.train, split.forget_indices)
    most = line.results[-1].history["asked"][-1]
    assert gammas[0] == 0
    assert gammas == sorted(gammas)
    for result in line.results:
        share = (doubt(result.model, split.train, split.forget_indices) - start) / (most - start)
        assert target_degree(result.method.gamma) == pytest.approx(min(share, 1.0), abs=1e-3)


def test_a_line_to_what_looks_unseen_already_has_no_length():
    model = memorised()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    line = continuation(Prepared.of(model, records(), CUP(shrink=1)))
    assert line.shares == (0.0, 1.0)
    assert [result.method.gamma for result in line.results] == [0, 0]
