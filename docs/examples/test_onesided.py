import pytest
from gradpivot_onesided import OneSided, onesided_weights

from gradpivot.geometry import Gram
from gradpivot.testing import MethodContract


class TestOneSided(MethodContract):
    method = OneSided(lr=0.02, epochs=15)


def test_only_the_forget_gradient_gives_way():
    gram = Gram(ff=4.0, rr=1.0, fr=-1.5)
    a, b = onesided_weights(gram, retain_weight=0.0)
    assert a * gram.fr + b * gram.rr == pytest.approx(0)
    assert onesided_weights(gram, retain_weight=2.0) == (1.0, 3.5)
    assert onesided_weights(Gram(ff=4.0, rr=1.0, fr=1.5)) == (1.0, 1.0)
