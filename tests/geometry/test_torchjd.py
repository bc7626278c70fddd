from __future__ import annotations

import pytest
import torch

from gradpivot.errors import GradPivotError
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.pivot import PivotWeighting, pivot_weights
from gradpivot.geometry.torchjd import as_torchjd, from_torchjd
from gradpivot.geometry.weighting import WeightedSum

aggregation = pytest.importorskip("torchjd.aggregation")


def test_our_pivot_aggregates_a_jacobian():
    jacobian = torch.tensor([[1.0, 2.0, -1.0], [-2.0, 0.5, 3.0]], dtype=torch.float64)
    f, r = jacobian
    a, b = pivot_weights(float(f @ f), float(r @ r), float(f @ r), 0.3)
    aggregator = aggregation.GramianWeightedAggregator(as_torchjd(PivotWeighting(0.3)))
    torch.testing.assert_close(aggregator(jacobian), a * f + b * r)


def test_their_weightings_serve_ours():
    gram = Gram(4.0, 1.0, -1.5)
    assert from_torchjd(aggregation.SumWeighting())(gram) == WeightedSum()(gram)
    forget, retain = from_torchjd(aggregation.PCGradWeighting())(gram)
    assert (forget, retain) == pytest.approx((1 + 1.5 / 4, 1 + 1.5 / 1))


def test_two_losses_only():
    with pytest.raises(GradPivotError, match="forget and retain losses"):
        as_torchjd(WeightedSum())(torch.eye(3))


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_weights_of_a_sum_are_checked(bad):
    with pytest.raises(GradPivotError, match="finite and ≥ 0"):
        WeightedSum(forget=bad)
