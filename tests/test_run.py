from __future__ import annotations

import torch

from gradpivot.models.pixels import OnPixels, Pixels
from gradpivot.run import weights_digest
from gradpivot.testing import trained


def test_a_digest_is_of_all_that_decides_outputs():
    model = trained()
    before = weights_digest(model)
    assert weights_digest(trained()) == before
    with torch.no_grad():
        next(model.parameters())[0] += 1e-6
    assert weights_digest(model) != before
    # A normalisation is not among the saved weights, and still another one makes another model.
    digests = {weights_digest(OnPixels(pixels, trained())) for pixels in (Pixels(), Pixels((0.5,), (0.25,)))}
    assert len(digests) == 2
