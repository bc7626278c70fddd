import pytest
from gradpivot_pcgrad import PCGrad, pcgrad_weights

from gradpivot.geometry import Gram
from gradpivot.testing import MethodContract


class TestPCGrad(MethodContract):
    method = PCGrad(lr=0.02, epochs=15)


def test_conflicting_gradients_are_projected():
    assert pcgrad_weights(Gram(ff=4.0, rr=1.0, fr=-1.5)) == pytest.approx((1.375, 2.5))
    assert pcgrad_weights(Gram(ff=4.0, rr=1.0, fr=1.5)) == (1.0, 1.0)
