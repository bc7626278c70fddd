from my_objective import p_true

from gradpivot import CUP, ForgetSplit, unlearn
from gradpivot.testing import blobs, trained


def test_it_forgets_and_keeps():
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), classes=0)
    result = unlearn(trained(), split, CUP(gamma=1.0, lr=0.02, epochs=15, objective=p_true.name))
    assert result.scores.ua > 0.9
    assert result.scores.ra > 0.9
