"""What people see when they print what the verbs return."""

from gradpivot import CUP, ForgetSplit, trace, unlearn
from gradpivot.testing import blobs, trained


def test_results_print_in_one_line():
    model, split = trained(), ForgetSplit.by_class(blobs(), blobs(seed=1), 2)
    result = unlearn(model, split, CUP(gamma=0.5, epochs=1))
    aimed = unlearn(model, split, CUP(epochs=1), until="UA>=50")
    along = trace(model, split, CUP(epochs=1), values=[0, 1])
    for printed in (result, aimed, along, split):
        assert len(repr(printed)) < 200
        assert "\n" not in repr(printed)
    assert repr(result).startswith("Result(CUP(epochs=1, gamma=0.5): RA ")
    assert repr(aimed).startswith("Targeted(CUP(")
    assert repr(along) == "Trace(CUP: 2 points along gamma)"
    assert repr(split) == "ForgetSplit(class 2: 40 to forget, 80 to retain)"
