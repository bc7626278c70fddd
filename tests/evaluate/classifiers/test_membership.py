"""The membership attack against scikit-learn's SVC and against brute force.

scikit-learn's SVC takes some 20 s on 10,000 + 10,000 points, so its verdicts on sets of that size
are stored: those on real confidences in ``data/confidences.npz``, which is made by
``benchmarks/make_confidences.py`` (the verdicts alone by its ``--recompute``), those on synthetic
ones in ``SYNTHETIC`` below. The latter are recomputed, in about two minutes, by

    python tests/evaluate/test_membership.py --recompute
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from scipy.special import expit
from scipy.stats import beta, norm
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

from gradpivot.evaluate.classifiers import membership, svc
from gradpivot.evaluate.classifiers.membership import (
    MIN_ATTACK_ACCURACY,
    attack_auc,
    rmia_auc,
    svc_attack,
    threshold_attack,
)

STORED = Path(__file__).parent / "data" / "confidences.npz"
HALF_A_POINT = 0.005

Triple = tuple[np.ndarray, np.ndarray, np.ndarray]
Quantiles = Callable[[np.ndarray], np.ndarray]


def sklearn_verdict(sets: Triple, tol: float = 1e-3) -> tuple[float, float]:
    """MIA and training accuracy of the papers' SVC, fitted to every point."""
    members, nonmembers, forget = (np.asarray(part, dtype=float)[:, None] for part in sets)
    points = np.concatenate([members, nonmembers])
    labels = np.repeat([1, 0], [len(members), len(nonmembers)])
    attack = SVC(C=3, gamma="auto", kernel="rbf", tol=tol).fit(points, labels)
    return float((attack.predict(forget) == 0).mean()), float(attack.score(points, labels))


def stored_sets() -> dict[str, tuple[Triple, np.ndarray]]:
    with np.load(STORED) as stored:
        keys = [key.split("/") for key in stored.files if "/forget/" in key]
        return {
            f"{model} {part}": (
                (stored[f"{model}/members"], stored[f"{model}/nonmembers"], stored[f"{model}/forget/{part}"]),
                stored[f"{model}/reference/{part}"],
            )
            for model, _, part in keys
        }


REAL = stored_sets()


# ---- Synthetic sets: quantiles instead of draws, so that they are the same for every NumPy ------


def beta_quantiles(a: float, b: float) -> Quantiles:
    return lambda u: beta.ppf(u, a, b)


def mixture(weight: float, first: Quantiles, second: Quantiles) -> Quantiles:
    """The first part of the samples from one distribution, the rest from another."""

    def quantiles(u: np.ndarray) -> np.ndarray:
        rest = (u - weight) / (1 - weight)
        return np.where(u < weight, first(u / weight % 1), second(rest % 1))

    return quantiles


def logit_normal(mean: float, deviation: float) -> Quantiles:
    return lambda u: expit(mean + deviation * norm.ppf(u))


def uniform(low: float, high: float) -> Quantiles:
    return lambda u: low + (high - low) * u


ones = uniform(1.0, 1.0)
crowd = uniform(1 - 1e-6, 1.0)

# members, non-members, forget; then scikit-learn's MIA and training accuracy at 10,000 + 10,000
SYNTHETIC: dict[str, tuple[tuple[Quantiles, Quantiles, Quantiles], tuple[float, float]]] = {
    "beta": ((beta_quantiles(8, 1), beta_quantiles(3, 1.5), beta_quantiles(5, 1)), (0.3315, 0.76425)),
    "beta mixture": (
        (
            mixture(0.9, beta_quantiles(30, 1), beta_quantiles(2, 2)),
            mixture(0.6, beta_quantiles(20, 1), beta_quantiles(1, 2)),
            mixture(0.5, beta_quantiles(30, 1), beta_quantiles(2, 5)),
        ),
        (0.506, 0.6591),
    ),
    "faint": ((beta_quantiles(9, 1), beta_quantiles(6, 1), beta_quantiles(7, 1)), (0.389, 0.5741)),
    "ties at 1": (
        (mixture(0.9, ones, uniform(0, 1)), mixture(0.6, ones, uniform(0, 1)), mixture(0.7, ones, uniform(0, 1))),
        (0.276, 0.63795),
    ),
    "crowded below 1": (
        (crowd, mixture(0.5, crowd, beta_quantiles(2, 1)), mixture(0.3, crowd, beta_quantiles(2, 1))),
        (0.6715, 0.7399),
    ),
    "separated": ((uniform(0.8, 1), uniform(0, 0.5), uniform(0, 1)), (0.65, 1.0)),
    # Forget samples below nearly all training points: what merging gets wrong, this magnifies.
    "extrapolated": ((logit_normal(5.9, 1.9), logit_normal(4.6, 2.1), uniform(0, 0.15)), (0.899, 0.5871)),
    "far extrapolated": ((logit_normal(5.5, 1.5), logit_normal(4.0, 1.0), uniform(0, 0.09)), (0.3075, 0.66005)),
    "over-forgotten": ((beta_quantiles(20, 1), beta_quantiles(4, 1.2), beta_quantiles(0.3, 12)), (1.0, 0.80625)),
}


def synthetic_set(name: str, size: int) -> Triple:
    members, nonmembers, forget = SYNTHETIC[name][0]
    many, few = ((np.arange(n) + 0.5) / n for n in (size, size // 5))
    return members(many), nonmembers(many), forget(few)


# ---- The SVC ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYNTHETIC)
def test_below_the_limit_the_svc_is_scikit_learns(name: str) -> None:
    sets = synthetic_set(name, 900)
    assert svc_attack(*sets) == sklearn_verdict(sets)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.slow
def test_below_the_limit_the_svc_is_scikit_learns_on_real_confidences(name: str) -> None:
    members, nonmembers, forget = REAL[name][0]
    sets = members[:1000], nonmembers[:1000], forget[:500]
    assert svc_attack(*sets) == sklearn_verdict(sets)


def test_the_limit_counts_members_and_nonmembers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("wrong route")

    low, high = np.linspace(0, 0.5, 2000), np.linspace(0.4, 1, 2000)
    monkeypatch.setattr(membership, "fit_all", refuse)
    svc_attack(high, low, low)
    monkeypatch.undo()
    monkeypatch.setattr(membership, "fit_merged", refuse)
    svc_attack(high[1:], low, low)
    svc_attack(high, low, low, exact_below=4001)


@pytest.mark.parametrize("name", REAL)
def test_merged_svc_agrees_with_scikit_learns_on_real_confidences(name: str) -> None:
    sets, (share, accuracy, tight_share, _) = REAL[name]
    assert accuracy >= MIN_ATTACK_ACCURACY
    verdict = svc_attack(*sets)
    assert verdict.share == pytest.approx(share, abs=HALF_A_POINT)
    assert verdict.share == pytest.approx(tight_share, abs=HALF_A_POINT)
    assert verdict.accuracy == pytest.approx(accuracy, abs=HALF_A_POINT)
    assert verdict.determined


@pytest.mark.parametrize("name", SYNTHETIC)
def test_merged_svc_agrees_with_scikit_learns_on_synthetic_confidences(name: str) -> None:
    share, accuracy = SYNTHETIC[name][1]
    assert accuracy >= MIN_ATTACK_ACCURACY
    verdict = svc_attack(*synthetic_set(name, 10_000))
    assert verdict.share == pytest.approx(share, abs=HALF_A_POINT)
    assert verdict.accuracy == pytest.approx(accuracy, abs=HALF_A_POINT)


shapes = st.tuples(st.floats(0.3, 20), st.floats(0.3, 5))


# Every multiplier is at its bound here, and the bias hangs on the outermost points.
@example(seed=0, member=(1, 1), nonmember=(3, 4), forget=(2, 3), tied=0.0, width=0.02)
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32 - 1),
    member=shapes,
    nonmember=shapes,
    forget=shapes,
    tied=st.sampled_from([0.0, 0.3, 0.8]),
    width=st.sampled_from([1.0, 0.02, 1e-4]),
)
@pytest.mark.slow
def test_merged_svc_agrees_with_scikit_learns_on_random_mixtures(
    seed: int,
    member: tuple[float, float],
    nonmember: tuple[float, float],
    forget: tuple[float, float],
    tied: float,
    width: float,
) -> None:
    draw = np.random.default_rng(seed)

    def sample(shape: tuple[float, float], size: int, share_of_ones: float) -> np.ndarray:
        values = 1 - width * draw.beta(*shape[::-1], size)
        return np.where(draw.random(size) < share_of_ones, 1.0, values)

    sets = sample(member, 2000, tied), sample(nonmember, 2000, tied / 2), sample(forget, 2000, 0)
    share, accuracy = sklearn_verdict(sets)
    if accuracy < MIN_ATTACK_ACCURACY:
        return
    verdict = svc_attack(*sets)
    if abs(verdict.share - share) > HALF_A_POINT:
        # LIBSVM's default tolerance moves its own boundary; no better agreement can be asked for.
        slack = abs(share - sklearn_verdict(sets, tol=1e-8)[0])
        assert verdict.share == pytest.approx(share, abs=HALF_A_POINT + slack)


def test_merged_svc_does_not_depend_on_the_order() -> None:
    members, nonmembers, forget = REAL["cnn unseen"][0]
    turned = svc_attack(members[::-1], np.roll(nonmembers, 123), forget[::-1])
    assert turned == svc_attack(members, nonmembers, forget)


def test_merged_svc_is_exact_where_confidences_are_equal() -> None:
    draw = np.random.default_rng(0)
    members, nonmembers, forget = (np.round(draw.beta(a, 1, 1500), 2) for a in (6, 3, 4))
    sets = members, nonmembers, forget
    assert svc_attack(*sets, exact_below=0).share == sklearn_verdict(sets)[0]


def test_features_reproduce_the_kernel() -> None:
    points = np.linspace(0, 1, 201)
    features = svc._features(points)
    kernel = np.exp(-((points[:, None] - points) ** 2))
    np.testing.assert_allclose(features @ features.T, kernel, rtol=0, atol=2e-15)


@pytest.mark.parametrize("size", [500, 5000])
def test_sets_that_look_alike_are_undetermined(size: int) -> None:
    draw = np.random.default_rng(1)
    verdict = svc_attack(*(draw.beta(8, 1, size) for _ in range(3)))
    assert verdict.accuracy < MIN_ATTACK_ACCURACY
    assert not verdict.determined


@pytest.mark.parametrize("size", [10, 5000])
def test_equal_confidences_are_undetermined(size: int) -> None:
    same = np.full(size, 0.25)
    verdict = svc_attack(same, same, same)
    assert verdict.accuracy == 0.5
    assert not verdict.determined
    assert verdict.share in {0.0, 1.0}


def test_determined_starts_at_55_percent() -> None:
    assert membership.SvcVerdict(share=0.0, accuracy=0.55).determined
    assert not membership.SvcVerdict(share=0.0, accuracy=0.5499).determined


# ---- The threshold ------------------------------------------------------------------------------

# Few distinct values make ties; any float makes neighbours without a middle.
confidence = st.one_of(st.sampled_from([k / 8 for k in range(9)]), st.floats(0, 1))
confidences = st.lists(confidence, min_size=1, max_size=12)


def balanced_accuracy(members: list[float], nonmembers: list[float], cut: float) -> Fraction:
    found = Fraction(sum(x < cut for x in nonmembers), len(nonmembers))
    kept = Fraction(sum(x >= cut for x in members), len(members))
    return (found + kept) / 2


@given(confidences, confidences, confidences)
def test_threshold_is_the_lowest_best_cut(members: list[float], nonmembers: list[float], forget: list[float]) -> None:
    verdict = threshold_attack(members, nonmembers, forget)
    # A cut at a value is as good as any between it and the value before; 2 takes in all.
    cuts = [*sorted({*members, *nonmembers}), 2.0]
    reached = {cut: balanced_accuracy(members, nonmembers, cut) for cut in cuts}
    best = max(reached.values())
    lowest = min(cut for cut in cuts if reached[cut] == best)
    assert balanced_accuracy(members, nonmembers, verdict.cut) == best
    assert verdict.accuracy == pytest.approx(float(best), abs=1e-12)
    assert verdict.cut <= lowest
    assert all(x < verdict.cut or x >= lowest for x in members + nonmembers)
    assert verdict.share == sum(x < verdict.cut for x in forget) / len(forget)


@given(confidences, confidences, confidences, st.data())
def test_threshold_is_monotone(
    members: list[float], nonmembers: list[float], forget: list[float], data: st.DataObject
) -> None:
    lower = [x * data.draw(st.floats(0, 1)) for x in forget]
    before = threshold_attack(members, nonmembers, forget)
    after = threshold_attack(members, nonmembers, lower)
    assert after.share >= before.share
    assert after[1:] == before[1:]


@pytest.mark.parametrize(
    ("members", "nonmembers"),
    [([0.7, 0.7], [0.7]), ([1.0], [1.0]), ([0.0], [0.0]), ([0.1, 0.5, 0.9], [0.9, 0.5, 0.1]), ([0.1, 0.2], [0.8, 0.9])],
    ids=["equal", "all one", "all zero", "equal sets", "members less confident"],
)
def test_threshold_without_evidence_judges_only_what_is_below_everything_known(
    members: list[float], nonmembers: list[float]
) -> None:
    lowest = min(members + nonmembers)
    below = sum(x < lowest for x in [0.0, 0.3, 1.0]) / 3
    assert threshold_attack(members, nonmembers, [0.0, 0.3, 1.0]) == (below, lowest, 0.5)


def test_an_over_forgotten_set_is_no_member_even_where_all_the_others_look_alike() -> None:
    """Seen in a run of plain −CE: members and non-members all at 1.0, the forgotten class at 0."""
    assert threshold_attack([1.0] * 5, [1.0] * 5, [0.0, 1e-12]).share == 1.0


def test_threshold_lies_half_way() -> None:
    verdict = threshold_attack([0.75, 1.0], [0.25, 0.0], [0.4, 0.5, 0.6, 0.1])
    assert verdict == (0.5, 0.5, 1.0)


@pytest.mark.parametrize("low", [0.0, 0.5, np.nextafter(1, 0)])
def test_threshold_tells_neighbouring_floats_apart(low: float) -> None:
    high = np.nextafter(low, 2)
    verdict = threshold_attack([high], [low], [low, high])
    assert verdict == (0.5, high, 1.0)


def test_threshold_prefers_the_lower_of_equal_cuts() -> None:
    # Below 0.15: half of the non-members. Below 0.55: all of them, and half of the members.
    assert threshold_attack([0.3, 0.9], [0.0, 0.5], [0.2, 0.4]).cut == 0.15


# ---- Both ---------------------------------------------------------------------------------------


def test_lists_and_single_precision_are_welcome() -> None:
    members, nonmembers, forget = [0.9, 1, 0.75], [0.25, 0, 0.5], [0.125]
    expected = threshold_attack(members, nonmembers, forget)
    single = (np.array(part, dtype=np.float32) for part in (members[1:], nonmembers, forget))
    assert threshold_attack(*single).share == expected.share == 1.0


@pytest.mark.parametrize("attack", [svc_attack, threshold_attack])
@pytest.mark.parametrize("place", ["members", "nonmembers", "forget"])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([], r"is empty; pass at least one"),
        ([[0.5, 0.5]], r"has shape \(1, 2\); it must be 1-D: pass one true-label confidence"),
        (0.5, r"has shape \(\); it must be 1-D"),
        ([0.5, float("nan")], r"\[1\] is nan; it must be in \[0, 1\]: .* as diverged"),
        ([float("inf")], r"\[0\] is inf; it must be in \[0, 1\]"),
        ([0.5, 0.5, 1.5], r"\[2\] is 1\.5; it must be in \[0, 1\]: pass softmax probabilities"),
        ([-0.25], r"\[0\] is -0\.25; it must be in \[0, 1\]"),
    ],
)
def test_errors_name_the_value_and_the_way_out(
    attack: Callable[..., object], place: str, wrong: object, message: str
) -> None:
    sets = {"members": [0.9], "nonmembers": [0.1], "forget": [0.5], place: wrong}
    with pytest.raises(ValueError, match=f"^{place}.*{message}"):
        attack(**sets)


@given(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]) | st.floats(0, 1), min_size=1, max_size=30),
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]) | st.floats(0, 1), min_size=1, max_size=30),
)
def test_the_auc_is_scikit_learns(forget: list[float], unseen: list[float]) -> None:
    truth = np.repeat([1, 0], [len(forget), len(unseen)])
    expected = roc_auc_score(truth, np.concatenate([forget, unseen]))
    assert attack_auc(forget, unseen) == pytest.approx(expected, abs=1e-12)
    assert attack_auc(unseen, forget) == pytest.approx(1 - expected, abs=1e-12)


def test_the_auc_of_equal_sets_is_one_half() -> None:
    confidences = np.random.default_rng(0).random(101)
    assert attack_auc(confidences, confidences) == 0.5
    assert attack_auc([0.9, 0.8], [0.1]) == 1.0


def test_the_auc_says_what_it_cannot_take() -> None:
    with pytest.raises(ValueError, match="forget is empty"):
        attack_auc([], [0.5])
    with pytest.raises(ValueError, match=r"unseen\[1\] is 2.0"):
        attack_auc([0.5], [0.5, 2.0])


if __name__ == "__main__" and sys.argv[1:] == ["--recompute"]:
    for set_name in SYNTHETIC:
        print(f"{set_name}: {sklearn_verdict(synthetic_set(set_name, 10_000))}", flush=True)


@pytest.mark.parametrize("seed", range(5))
def test_a_threshold_on_sets_that_look_alike_is_undetermined(seed):
    draw = np.random.default_rng(seed)
    alike = threshold_attack(draw.random(20_000), draw.random(20_000), draw.random(100))
    assert not alike.determined
    assert alike.accuracy < MIN_ATTACK_ACCURACY
    assert threshold_attack(draw.uniform(0.5, 1, 500), draw.uniform(0, 0.7, 500), draw.random(100)).determined


def test_rmia_weighs_samples_by_their_difficulty():
    draw = np.random.default_rng(0)
    forget, unseen = draw.uniform(0.1, 1, 50), draw.uniform(0.1, 1, 60)
    same = rmia_auc(forget, unseen, forget[None], unseen[None], offset=1.0)
    assert same == 0.5  # a model that is its own reference gives nothing away
    flat = rmia_auc(forget, unseen, np.full((2, 50), 0.4), np.full((2, 60), 0.4))
    assert flat == attack_auc(forget, unseen)
    # Hard samples that are known are members; easy ones that are known need not be.
    assert rmia_auc(np.full(50, 0.9), np.full(60, 0.9), np.full((1, 50), 0.2), np.full((1, 60), 0.9)) == 1.0
    assert rmia_auc(np.zeros(3), np.zeros(3), np.zeros((1, 3)), np.zeros((1, 3)), offset=1.0) == 0.5
