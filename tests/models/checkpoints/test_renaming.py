from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from gradpivot.errors import GradPivotError
from gradpivot.models.checkpoints.renaming import fit_names, rename

OURS = [
    "conv1.weight", "bn1.weight", "bn1.num_batches_tracked", "layer2.0.shortcut.0.weight", "layer2.0.conv1.weight",
    "linear.weight", "linear.bias",
]  # fmt: skip


def fitted(keys, wanted=OURS, rules=()):
    return fit_names(rename(keys, rules), dict.fromkeys(wanted))


def as_they_have_it(change) -> dict[str, str]:
    return {change(key): key for key in OURS}


@pytest.mark.parametrize(
    ("change", "notes"),
    [
        (lambda key: key, ()),
        (lambda key: f"module.{key}", ("without 'module'",)),
        (lambda key: f"_orig_mod.module.{key}", ("without '_orig_mod' and 'module'",)),
        (lambda key: f"model.{key}", ("without 'model.' in front",)),
        (lambda key: f"module.net.encoder.{key}", ("without 'module.net.encoder.' in front",)),
        (lambda key: key.replace("layer2.", "layer2._orig_mod."), ("without '_orig_mod'",)),
        (
            lambda key: key.replace("linear", "fc").replace("shortcut", "downsample"),
            ("'fc' is 'linear' here", "'downsample' is 'shortcut' here"),
        ),
        (
            lambda key: "net." + key.replace("linear", "classifier"),
            ("without 'net.' in front", "'classifier' is 'linear' here"),
        ),
    ],
)
def test_names_that_have_one_reading_fit_by_themselves(change, notes):
    theirs = as_they_have_it(change)
    fit = fitted(theirs)
    assert fit.is_whole
    assert dict(fit.names) == theirs
    assert fit.notes == notes


parts = st.text("abc01", min_size=1, max_size=2)
keys = st.lists(parts, min_size=1, max_size=4).map(".".join)


@given(st.sets(keys, min_size=1, max_size=8), st.lists(parts, max_size=2), st.lists(parts, max_size=2))
def test_any_two_prefixes_of_the_same_names_fit_and_each_key_gets_its_own(names, theirs, ours):
    """Prefixes on either side are found, and no key ever goes to another's place."""
    file = {".".join([*theirs, name]): ".".join([*ours, name]) for name in names}
    fit = fitted(file, wanted=list(file.values()))
    assert fit.is_whole
    assert dict(fit.names) == file


def test_a_model_inside_another_gets_the_outer_name():
    fit = fitted(OURS, wanted=[f"model.{key}" for key in OURS])
    assert fit.is_whole
    assert fit.notes == ("under 'model.'",)


def test_a_model_with_a_part_called_module_keeps_it():
    assert fitted(["module.a.weight", "b.weight"], wanted=["module.a.weight", "b.weight"]).notes == ()


def test_only_the_batch_counter_may_be_absent():
    without = [key for key in OURS if not key.endswith("num_batches_tracked")]
    assert fitted(without).is_whole
    assert fitted(OURS[1:]).missing == ("conv1.weight",)
    # One that the model does not have is as unexpected as any other.
    assert fitted(OURS, wanted=without).unexpected == ("bn1.num_batches_tracked",)


def test_what_fits_in_two_ways_or_in_part_is_not_guessed():
    # Two heads for one place, one head for two places, names of no known synonym.
    assert not fitted(["fc.weight", "head.weight", "a.b"], wanted=["linear.weight", "a.b"]).is_whole
    assert not fitted(["fc.weight", "a.b"], wanted=["linear.weight", "classifier.weight", "a.b"]).is_whole
    fit = fitted(["stem.weight", "a.b"], wanted=["conv1.weight", "a.b"])
    assert (fit.missing, fit.unexpected) == (("conv1.weight",), ("stem.weight",))
    assert fitted(["model.a.b", "loss.weight"], wanted=["a.b"]).unexpected == ("model.a.b", "loss.weight")
    # Taking 'module' away would make one key of two.
    assert not fitted(["a.module.w", "a.w"], wanted=["a.w", "b.w"]).is_whole


@pytest.mark.parametrize(
    ("rules", "key", "name"),
    [
        (["fc=linear"], "fc.weight", "linear.weight"),
        (["fc=linear"], "head.fc.bias", "head.linear.bias"),
        (["fc=linear"], "fc2.weight", "fc2.weight"),
        (["^net="], "net.a.net.b", "a.net.b"),
        (["head.fc=linear"], "head.fc.bias", "linear.bias"),
        ([r"block(\d+).(\d+)=layer\1.\2"], "block3.0.conv", "layer3.0.conv"),
        (["a=b", "b=c"], "a.w", "c.w"),
        (["w=b.w"], "a.w", "a.b.w"),
    ],
)
def test_rules(rules, key, name):
    assert rename([key, "fc.x", "net.x", "head.fc.x", "block1.1", "a.x", "x.w"], rules)[key] == name


def test_a_rule_leaves_out():
    assert rename(["a.w", "aux.w", "b.aux.w", "auxiliary.w"], ["aux=-"]) == {"a.w": "a.w", "auxiliary.w": "auxiliary.w"}


def test_rules_come_before_everything_else():
    fit = fitted([f"module.{key}".replace("conv1", "stem") for key in OURS], rules=["stem=conv1"])
    assert fit.is_whole


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (["fc"], "write old=new"),
        (["=fc"], "write old=new"),
        (["(=fc"], "not a regular expression"),
        ([r"a=\3"], "is not a valid replacement"),
        (["nowhere=fc"], "'nowhere=fc' matches no key; the keys are a.w, b.w"),
        (["a=b"], "to 'b.w'"),
    ],
)
def test_rules_that_cannot_be_followed(rules, message):
    with pytest.raises(GradPivotError, match=message.replace("\\", "\\\\")):
        rename(["a.w", "b.w"], rules)
