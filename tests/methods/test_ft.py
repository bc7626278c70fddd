from __future__ import annotations

import torch

from gradpivot import ForgetSplit, unlearn
from gradpivot.methods import FT
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import TinyNet, blobs, trained


class TestFT(MethodContract):
    # Separable blobs: fine-tuning on the others has no reason to forget the first.
    method = FT(epochs=20, batch_size=16)
    least_ua = 0.0


def test_it_starts_from_the_given_weights():
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    original = trained()
    result = unlearn(original, split, FT(lr=1e-12, epochs=1), factory=TinyNet)
    for before, after in zip(original.parameters(), result.model.parameters(), strict=True):
        torch.testing.assert_close(before, after, rtol=0, atol=1e-6)
