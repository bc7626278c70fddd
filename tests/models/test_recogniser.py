from __future__ import annotations

import torch

from gradpivot.models.recogniser import Recogniser


def test_the_recognisers_logits_are_a_linear_layer_on_its_features():
    for size in (16, 28):
        model = Recogniser(size=size, width=20).eval()
        images = torch.randint(256, (3, 1, size, size), dtype=torch.uint8)
        features = model.features(images)
        assert features.shape == (3, 20)
        assert bool((features >= 0).all())
        torch.testing.assert_close(model(images), model.linear(features))
        torch.testing.assert_close(model(images.float() / 255), model(images))
