from __future__ import annotations

import pytest

from gradpivot import CUP, GA, IU, RL, SCRUB, WS, ForgetSplit, L1Sparse, Retrain
from gradpivot.data.order import batch_count
from gradpivot.loop.batches import forget_plan, paired_plan, plain_plan, sequential_plan
from gradpivot.methods.method import Method
from gradpivot.methods.sa import SA
from gradpivot.testing.problems import blobs

SPLIT = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
"""40 samples to forget, 80 to keep."""


@pytest.mark.parametrize(
    ("method", "gradients"),
    [
        (CUP(), 5 * (40 + 40)),
        (CUP(epochs=2, batch_size=10, retain_batch_size=5), 2 * (40 + 20)),
        (CUP(iterations=30), 30 * (8 + 8)),
        (CUP(iterations=3, batch_size=20, retain_batch_size=90), 3 * (20 + 80)),
        (WS(epochs=1), 80),
        (GA(epochs=3), 3 * 40),
        (GA(iterations=3, batch_size=10), 3 * 10),
        (RL(epochs=1), 80),
        (RL(epochs=1, order="sequential"), 40 + 80),
        (RL(iterations=30, batch_size=8, order="sequential"), 30 * 8),
        (SCRUB(epochs=5, max_epochs=3), 3 * 40 + 5 * 80),
        (Retrain(epochs=2), 2 * 80),
        (L1Sparse(iterations=10, batch_size=16), 10 * 16),
        (IU(), 40 + 80),
        (SA(iterations=10, batch_size=16), 10 * (16 + 16)),
        (SA(epochs=2, batch_size=16, samples=50), 2 * batch_count(50, 16) * 32),
    ],
)
def test_what_a_run_takes(method: Method, gradients: float):
    assert method.gradients(SPLIT) == pytest.approx(gradients)


@pytest.mark.parametrize(
    "method", [CUP(iterations=7), GA(epochs=2), RL(iterations=9, order="sequential"), L1Sparse(epochs=2)]
)
def test_it_is_what_the_batches_have(method: Method):
    plans = {
        CUP: paired_plan,
        GA: forget_plan,
        RL: sequential_plan,
        L1Sparse: lambda split, recipe, seed: plain_plan(split.retain_indices, recipe, seed),
    }
    plan = plans[type(method)](SPLIT, method, 0)
    sizes = [len(batch) for _, sides in plan.epochs_from(0) for side in sides for batch in side]
    # Batches of one epoch need not be equal; a run that ends within one may be off by a part of a batch.
    assert method.gradients(SPLIT) == pytest.approx(sum(sizes), abs=8)
