from __future__ import annotations

import torch

from gradpivot.models.vae import VAE


def test_shapes_and_kinds_of_images():
    model = VAE(3, (16, 8), channels=2, size=6)
    images = torch.randint(256, (5, 2, 6, 6), dtype=torch.uint8)
    told = model(images)
    assert told.logits.shape == (5, 2, 6, 6)
    assert told.mean.shape == told.log_variance.shape == (5, 3)
    torch.testing.assert_close(model.encode(images.float() / 255), model.encode(images))
    assert model.decode(torch.zeros(4, 3)).shape == (4, 2, 6, 6)


def test_codes_are_drawn_from_torchs_generator_and_from_q():
    model = VAE(2, (8,), size=4)
    images = torch.rand(1, 1, 4, 4).expand(4000, 1, 4, 4)
    seen = []
    model.decode = lambda codes: seen.append(codes) or codes  # type: ignore[method-assign]
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        mean, log_variance = model(images)[1:]
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])
    torch.testing.assert_close(seen[0].mean(0), mean[0], atol=0.08, rtol=0)
    torch.testing.assert_close(seen[0].var(0), log_variance[0].exp(), rtol=0.1, atol=0)


def test_encoder_and_decoder_are_mirrored():
    model = VAE(2, (32, 16), size=8)
    shapes = [tuple(p.shape) for p in model.encoder.parameters() if p.ndim == 2]
    assert shapes == [(32, 64), (16, 32), (4, 16)]
    assert [tuple(p.shape) for p in model.decoder.parameters() if p.ndim == 2] == [(16, 2), (32, 16), (64, 32)]
