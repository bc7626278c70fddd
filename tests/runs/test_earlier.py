"""The effect of a run on already forgotten records: result, console and files."""

from __future__ import annotations

import json

import pytest

from gradpivot import CUP, GA, ForgetSplit, trace, unlearn
from gradpivot.runs.earlier import AlreadyForgotten
from gradpivot.runs.folder import write_run
from gradpivot.testing.problems import blobs, trained


def found(before: float, after: float, retained: float = 0.02, n: int = 37) -> AlreadyForgotten:
    return AlreadyForgotten(n=n, before=before, after=after, retained=retained)


@pytest.mark.parametrize(
    ("before", "after", "relearned"),
    [
        (0.22, 0.22, False),
        (0.22, 0.201, False),
        (0.22, 0.199, True),
        (0.22, 0.5, False),
        (0.02, 0.0, False),  # never forgotten: nothing to re-learn
        (0.01, 0.0, False),
    ],
)
def test_a_tenth_of_the_gap_is_what_a_run_may_take_back(before, after, relearned):
    assert found(before, after).relearned is relearned
    assert found(before, after).to_dict()["relearned"] is relearned


def test_it_prints_in_one_line():
    assert str(found(0.198, 0.157)) == "37 records already forgotten: mean uncertainty 19.80 % → 15.70 %"
    assert str(found(0.198, 0.157, n=1)).startswith("1 record already")


def split_of(**options) -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0, **options)


def test_every_kind_of_run_measures_it(tmp_path):
    split = split_of(already_forgotten=[1, 2, 4])
    plain = unlearn(trained(), split, GA(epochs=1))
    aimed = unlearn(trained(), split, CUP(epochs=2), until="UA>=30")
    along = trace(trained(), split, CUP(epochs=2), quick=True, points=3)
    for result in (plain, aimed, *along.results):
        assert result.already_forgotten.n == 3
    assert along.results[0].already_forgotten.after == along.results[0].already_forgotten.before
    assert unlearn(trained(), split_of(), GA(epochs=1)).already_forgotten is None
    write_run(tmp_path, {}, split, plain, plain.scores)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["already_forgotten"] == plain.already_forgotten.to_dict()
    assert metrics["provenance"]["split"]["n_already_forgotten"] == 3


def test_a_run_that_re_learns_them_says_what_to_do():
    held = unlearn(trained(), split_of(already_forgotten=[1, 2]), CUP(epochs=1))
    free = unlearn(trained(), split_of(already_forgotten=[1, 2]), GA(epochs=1))
    for result, advice in ((held, "use more epochs"), (free, "under the dial")):
        object.__setattr__(result, "already_forgotten", found(0.198, 0.157))
        assert "19.80 % → 15.70 %, towards 2.00 % of retained records" in result.relearned
        assert advice in result.relearned
