"""The rule from findings to verdicts: its error rate, its power, and what it says when it knows too little."""

from dataclasses import replace

import numpy as np
import pytest

from gradpivot.errors import GradPivotError
from gradpivot.results.audit import AuditRecord, Finding, judge, verdict_on


def finding(difference: float | None = 0.0, error: float | None = 0.01, **changes: object) -> Finding:
    settings = {
        "name": "x_auc", "title": "X", "question": "membership", "meaning": "x", "unit": "", "value": 0.5,
        "control": 0.5, "difference": difference, "error": error, "n": 100,
    }  # fmt: skip
    return Finding(**{**settings, **changes})


def test_no_difference_with_a_small_error_is_indistinguishable():
    assert judge(finding(0.0, 0.01)) == "indistinguishable"


@pytest.mark.parametrize("difference", [0.2, -0.2])
def test_a_two_sided_finding_sees_both_directions(difference):
    assert judge(finding(difference, 0.01)) == "distinguishable"


def test_one_sided_findings_see_their_own_direction_only():
    assert judge(finding(0.2, direction="higher")) == "distinguishable"
    assert judge(finding(-0.2, direction="higher")) == "indistinguishable"
    assert judge(finding(-0.2, direction="lower")) == "distinguishable"
    assert judge(finding(0.2, direction="lower")) == "indistinguishable"


def test_a_large_error_is_undetermined_whatever_is_seen_within_it():
    assert judge(finding(0.05, 0.1)) == "undetermined"
    assert judge(finding(0.0, 0.1)) == "undetermined"


def test_a_difference_within_the_noise_between_retrained_models_is_no_evidence():
    assert judge(finding(0.05, 0.001, noise=0.06)) == "indistinguishable"
    assert judge(finding(0.08, 0.001, noise=0.06)) == "distinguishable"


def test_retrained_models_that_differ_more_than_the_margin_leave_it_open():
    noisy = finding(0.05, 0.001, noise=0.3, margin=0.1)
    assert judge(noisy) == "undetermined"
    sentence = verdict_on("membership", [replace(noisy, outcome="undetermined")]).sentence
    assert "retrained models differ by more than the margin" in sentence


def test_nothing_is_indistinguishable_while_a_deciding_attack_could_not_be_run():
    found = [replace(finding(), outcome="indistinguishable")]
    verdict = verdict_on("membership", found, {"Head refit": "no linear layer"})
    assert verdict.outcome == "undetermined"
    assert "Head refit (no linear layer)" in verdict.sentence
    caught = [*found, replace(finding(0.3), outcome="distinguishable")]
    assert verdict_on("membership", caught, {"Head refit": "no linear layer"}).outcome == "distinguishable"


def test_the_sentence_names_the_control():
    one = finding(question="collateral", direction="lower", control_is="original", outcome="indistinguishable")
    assert verdict_on("collateral", [one]).sentence.startswith("Yes: no worse than the original model, by all 1 tests")


def test_without_a_control_nothing_is_determined():
    assert judge(finding(None, None, control=None)) == "undetermined"


@pytest.mark.parametrize("comparisons", [1, 4, 12])
@pytest.mark.parametrize("direction", ["two-sided", "higher", "lower"])
def test_a_question_calls_no_more_than_five_percent_of_retrained_models_distinguishable(comparisons, direction):
    draws = np.random.default_rng(0).normal(0, 0.02, (4000, comparisons))
    called = [
        any(judge(finding(value, 0.02, direction=direction), comparisons) == "distinguishable" for value in row)
        for row in draws
    ]
    # Five standard deviations of a binomial share of 5 % above it.
    assert np.mean(called) < 0.05 + 5 * np.sqrt(0.05 * 0.95 / 4000)


def test_one_distinguishable_finding_decides():
    found = [replace(finding(0.3), outcome="distinguishable"), replace(finding(), outcome="indistinguishable")]
    verdict = verdict_on("membership", found)
    assert verdict.outcome == "distinguishable"
    assert "1 of 2" in verdict.sentence


def test_an_undetermined_finding_outweighs_indistinguishable_ones():
    found = [replace(finding(0.02, 0.1), outcome="undetermined"), replace(finding(), outcome="indistinguishable")]
    assert verdict_on("membership", found).outcome == "undetermined"


def test_an_attack_that_does_not_even_find_the_original_says_nothing():
    blind = finding(original=0.51, outcome="indistinguishable")
    verdict = verdict_on("membership", [blind])
    assert verdict.outcome == "undetermined"
    assert "even the original model" in verdict.sentence
    seeing = finding(original=0.7, outcome="indistinguishable")
    assert verdict_on("membership", [blind, seeing]).outcome == "indistinguishable"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"difference": 0.05, "noise": 0.03}, "lies between the noise (0.030) and the margin (0.100)"),
        ({"difference": 0.05, "noise": 0.0}, "too few samples (n = 100)"),
        ({"error": None, "note": "Fewer than 8 worlds: not decided."}, "Fewer than 8 worlds: not decided"),
        ({"control": None, "difference": None}, "no retrained model"),
    ],
)
def test_an_undetermined_verdict_gives_the_reason(changes, says):
    assert says in verdict_on("membership", [finding(**{"outcome": "undetermined", **changes})]).sentence


def test_findings_on_other_questions_do_not_count():
    assert verdict_on("knowledge", [replace(finding(), outcome="distinguishable")]).outcome == "undetermined"


def test_a_record_survives_json_and_refuses_another_schema():
    found = replace(finding(interval=(0.4, 0.6)), outcome="indistinguishable")
    record = AuditRecord(
        verdicts={"membership": verdict_on("membership", [found])}, attacks=(found,), level="quick", problem={},
        not_tested={"RMIA": "no retrained model"}, sections={}, provenance={},
    )  # fmt: skip
    assert AuditRecord.from_dict(record.to_dict()) == record
    assert record.finding("x_auc") == found
    with pytest.raises(GradPivotError, match="no finding 'y'"):
        record.finding("y")
    with pytest.raises(GradPivotError, match="schema"):
        AuditRecord.from_dict({**record.to_dict(), "schema": "gradpivot.audit/2"})
