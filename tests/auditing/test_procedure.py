"""The audit as a whole: planted cases come out as they must, and bad input is refused before any work."""

import json

import pytest
import torch

import planted
from gradpivot import CUP, ForgetSplit, audit, unlearn
from gradpivot.auditing import Attack, Measurement, NotTestedError, procedure
from gradpivot.errors import GradPivotError
from gradpivot.testing import memorised

QUESTIONS = ("membership", "knowledge", "collateral")


def audited(model, seed=0, **options):
    given = {"original": planted.original(seed), "retrain": planted.retrained(seed + 1), **options}
    return audit(model, planted.class_split(), **given)


def outcome(found, question):
    return found.verdicts[question].outcome


@pytest.mark.numeric
@pytest.mark.parametrize("seed", [0, 10, 20])
def test_the_original_is_flagged(seed):
    assert outcome(audited(planted.original(seed), seed), "knowledge") == "distinguishable"


@pytest.mark.numeric
@pytest.mark.slow
def test_retrained_models_pass():
    # At most 5 % of retrained models may be called distinguishable on a question: two of five has a probability of 2 %.
    found = [audited(planted.retrained(seed + 5), seed, level="standard") for seed in (0, 10, 20, 30, 40)]
    for question in QUESTIONS:
        assert sum(outcome(one, question) == "distinguishable" for one in found) <= 1, question


@pytest.mark.numeric
@pytest.mark.parametrize("value", [-1e9, float("-inf")])
def test_a_masked_logit_passes_ua_and_is_caught_in_the_last_layer(value):
    found = audited(planted.masked(planted.original(), value))
    assert found.finding("forget_accuracy").value == 0
    assert found.finding("forget_accuracy").outcome == "indistinguishable"
    assert found.finding("raw_outputs").outcome == "distinguishable"
    assert outcome(found, "knowledge") == "distinguishable"


@pytest.mark.numeric
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_memorised_random_labels_are_caught_by_the_two_sided_attack(seed):
    split = planted.record_split()
    fake = memorised(planted.retrained_on_records(3), split, seed=seed)
    found = audit(fake, split, retrain=planted.retrained_on_records(4))
    assert found.finding("margin_auc").value < 0.5
    assert outcome(found, "membership") == "distinguishable"


@pytest.mark.numeric
@pytest.mark.parametrize("seed", [0, 10, 20])
def test_a_destroyed_model_is_caught_by_collateral(seed):
    assert outcome(audited(planted.destroyed(seed), seed), "collateral") == "distinguishable"


def test_without_a_control_the_class_is_compared_with_theory():
    found = audit(planted.original(), planted.class_split())
    assert found.finding("forget_accuracy").control == 0
    assert found.finding("forget_accuracy").control_is == "theory"
    assert outcome(found, "knowledge") == "distinguishable"
    assert outcome(found, "collateral") == "undetermined"
    assert "RMIA" in " ".join(found.not_tested)


def test_an_audit_is_saved_and_says_what_it_left_out(tmp_path):
    found = audited(planted.original())
    found.save(tmp_path)
    saved = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert saved["schema"] == "gradpivot.audit/1"
    assert set(saved["verdicts"]) == set(QUESTIONS)
    assert saved["not_tested"]["U-LiRA"] == "only at level full"
    assert "audit.html" in {file.name for file in tmp_path.iterdir()}
    assert set(saved["provenance"]["weights"]) == {"audited", "original", "retrained 1"}
    assert "knowledge: distinguishable" in repr(found)


def test_the_models_and_the_random_state_stay_as_they_were():
    model, retrained = planted.original().train(), planted.retrained()
    before, state = [p.clone() for p in model.parameters()], torch.random.get_rng_state()
    audit(model, planted.class_split(), original=model, retrain=retrained, level="standard")
    assert model.training
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(state, torch.random.get_rng_state())


def test_the_same_seed_gives_the_same_numbers():
    first, second = (audited(planted.original(), seed=0) for _ in range(2))
    assert first.attacks == second.attacks


def test_several_retrained_models_give_the_noise():
    found = audited(planted.original(), retrain=[planted.retrained(1), planted.retrained(2)])
    assert found.finding("rmia").control_is == "retrained"
    assert set(found.provenance["weights"]) == {"audited", "original", "retrained 1", "retrained 2"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"level": "quik"}, "did you mean 'quick'"),
        ({"original": "a model"}, "the original model is a str"),
        ({"level": "full", "method": CUP()}, "pass problem="),
        ({"retrain": torch.nn.Linear(3, 2)}, "retrained model 1 cannot be run"),
        ({"level": "full", "method": CUP(), "problem": "digits", "shadows": 2}, "at least 4 worlds"),
    ],
)
def test_bad_input_is_refused_in_one_line(change, says):
    with pytest.raises(GradPivotError, match=says) as error:
        audited(planted.original(), **change)
    assert "\n" not in str(error.value)


def test_a_result_is_not_a_model():
    result = unlearn(planted.original(), planted.class_split(), CUP(gamma=0.5, epochs=1))
    with pytest.raises(GradPivotError, match=r"pass a torch.nn.Module, such as result.model"):
        audited(result)


def test_an_attack_that_cannot_run_is_left_out_with_its_reason(monkeypatch):
    def refuse(_):
        raise NotTestedError("no such data")

    mine = Attack(name="mine", title="Mine", question="knowledge", meaning="…", measure=refuse)
    plain = Attack(
        name="plain", title="Plain", question="knowledge", meaning="…", decides=False,
        measure=lambda subject: Measurement(value=0.5, n=len(subject.indices("forget"))),
    )  # fmt: skip
    monkeypatch.setattr(procedure, "attacks_up_to", lambda _: (mine, plain))
    monkeypatch.setattr(procedure, "all_attacks", lambda: (mine, plain))
    found = audited(planted.original())
    assert found.not_tested == {"Mine": "no such data"}
    assert found.finding("plain").outcome is None
    assert outcome(found, "knowledge") == "undetermined"


def test_a_fake_whose_head_cannot_be_read_is_not_passed():
    class Hidden(torch.nn.Module):
        """A mask around a model whose last layer is no nn.Linear."""

        def __init__(self, model):
            super().__init__()
            *layers, last = model.layers
            self.body, self.weight, self.bias = torch.nn.Sequential(*layers), last.weight, last.bias

        def forward(self, images):
            logits = torch.nn.functional.linear(self.body(images), self.weight, self.bias)
            return logits.index_fill(1, torch.tensor([planted.FORGOTTEN]), -1e9)

    found = audited(Hidden(planted.original()))
    assert found.finding("forget_accuracy").value == 0
    assert outcome(found, "knowledge") != "indistinguishable"
    assert "could not be run" in found.verdicts["knowledge"].sentence


def test_a_control_with_the_original_weights_is_refused():
    with pytest.raises(GradPivotError, match="same weights as the original"):
        audited(planted.original(), retrain=planted.original())


def test_a_control_that_is_the_audited_model_settles_nothing():
    found = audited(planted.retrained(1))
    assert {outcome(found, question) for question in QUESTIONS} == {"undetermined"}
    assert "Independent control" in found.verdicts["knowledge"].sentence


def test_a_control_that_knows_the_class_is_refused():
    with pytest.raises(GradPivotError, match="recognises 100 % of the forgotten classes"):
        audited(planted.original(), retrain=planted.original(7), original=None)


def test_an_attack_without_power_settles_nothing():
    split = planted.record_split()
    found = audit(planted.original(), split, original=planted.original(), retrain=planted.retrained_on_records(4))
    assert outcome(found, "knowledge") != "indistinguishable"


def test_a_split_file_is_not_a_split():
    with pytest.raises(GradPivotError, match="the split is a str; pass a ForgetSplit"):
        audit(planted.original(), "split.json")


def test_chosen_records_are_not_judged_against_theory():
    split = ForgetSplit.by_index(planted.class_split().train, planted.class_split().test, range(40))
    found = audit(planted.original(), split)
    assert found.finding("margin_auc").outcome == "undetermined"
    assert (
        "two retrained models"
        in audit(planted.original(), split, retrain=planted.retrained()).not_tested["RMIA with reference models"]
    )


def test_a_few_records_decide_nothing_about_membership():
    split = ForgetSplit.by_index(planted.class_split().train, planted.class_split().test, [1, 2, 3])
    found = audit(planted.original(), split, retrain=planted.retrained())
    assert found.finding("margin_auc").outcome == "undetermined"


def test_pictures_of_single_records_are_shown_on_request_only():
    split = planted.record_split()

    def shown(**options):
        found = audit(planted.original(), split, **options)
        return any(row["image"] for row in found.sections["records"])

    assert not shown()
    assert shown(images=True)
    assert any(row["image"] for row in audited(planted.original()).sections["records"])
