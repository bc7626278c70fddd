from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.utils.data import TensorDataset

from gradpivot import CUP, trace, unlearn
from gradpivot.data.split import ForgetSplit
from gradpivot.errors import GradPivotError
from gradpivot.evaluate.losses import LossScores
from gradpivot.loop.loop import Loop
from gradpivot.models.vae import VAE
from gradpivot.tasks.objectives import objective
from gradpivot.tasks.vae import Autoencoding

IMAGES, LABELS = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3
BATCH = IMAGES, LABELS


@pytest.fixture
def model() -> VAE:
    torch.manual_seed(0)
    return VAE(2, (16, 8), size=4)


def seeded(compute):
    torch.manual_seed(5)
    return compute()


def test_the_loss_is_minus_the_elbo_per_pixel(model):
    """Against torch.distributions, image by image."""
    found = seeded(lambda: Autoencoding().losses(model, BATCH))
    logits, mean, log_variance = seeded(lambda: model(IMAGES))
    posterior = Normal(mean, (log_variance / 2).exp())
    divergence = kl_divergence(posterior, Normal(0.0, 1.0)).sum(1)
    p = logits.sigmoid()
    missed = -(IMAGES * p.log() + (1 - IMAGES) * (1 - p).log()).sum((1, 2, 3))
    torch.testing.assert_close(found, (missed + divergence) / 16)
    torch.testing.assert_close(seeded(lambda: Autoencoding().retain_loss(model, BATCH)), found.mean())


def test_bytes_and_fractions_are_the_same_images(model):
    stored = (IMAGES * 255).round().to(torch.uint8)
    losses = [seeded(lambda x=x: Autoencoding().losses(model, (x, LABELS))) for x in (stored, stored.float() / 255)]
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize("forgets", ["decoder", "model"])
def test_the_papers_forgetting_loss_is_the_negative(model, forgets):
    task = Autoencoding(forgets=forgets)
    forget = seeded(lambda: task.forget_loss(model, BATCH, objective("negative_ce")))
    torch.testing.assert_close(forget, -seeded(lambda: task.retain_loss(model, BATCH)))


def test_forgetting_in_the_decoder_has_no_gradient_in_the_encoder(model):
    def gradients(forgets: str) -> dict[str, torch.Tensor | None]:
        model.zero_grad(set_to_none=True)
        seeded(lambda: Autoencoding(forgets=forgets).forget_loss(model, BATCH, objective("negative_ce"))).backward()
        return {name: p.grad for name, p in model.named_parameters()}

    whole, decoder = gradients("model"), gradients("decoder")
    for name, gradient in decoder.items():
        if name.startswith("encoder"):
            assert gradient is None
            assert whole[name].abs().sum() > 0
        else:
            torch.testing.assert_close(gradient, whole[name])


def test_the_hinge_stops_at_ignorance(model):
    losses = seeded(lambda: Autoencoding().losses(model, BATCH)).detach()
    between = float(losses.median()) + 1e-6
    task = Autoencoding(ignorance=between)
    found = seeded(lambda: task.forget_loss(model, BATCH, objective("hinge")))
    torch.testing.assert_close(found, (between - losses).clamp(min=0).mean())
    forgotten = seeded(
        lambda: Autoencoding(ignorance=float(losses.min()) - 0.01).forget_loss(model, BATCH, objective("hinge"))
    )
    forgotten.backward()
    assert forgotten.item() == 0
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_ignorance_is_what_the_mean_retained_image_costs():
    forget, retain = torch.rand(5, 1, 3, 3), torch.rand(7, 1, 3, 3)
    mean = retain.mean(0)
    expected = -(forget * mean.log() + (1 - forget) * (1 - mean).log()).mean()
    task = Autoencoding.from_images(forget, retain, forgets="model")
    assert task.ignorance == pytest.approx(float(expected), rel=1e-5)
    assert task.forgets == "model"
    black, white = (torch.zeros(2, 1, 1, 1, dtype=torch.uint8), torch.full((2, 1, 1, 1), 255, dtype=torch.uint8))
    assert Autoencoding.from_images(white, black).ignorance == pytest.approx(math.log(510), rel=1e-5)


def test_what_it_cannot_do_it_says(model):
    with pytest.raises(GradPivotError, match="do not predict labels"):
        Autoencoding().predict(model, BATCH)
    with pytest.raises(GradPivotError, match=r"unlikelihood needs class probabilities.* negative_ce or hinge"):
        Autoencoding().forget_loss(model, BATCH, objective("unlikelihood"))

    class Closed(nn.Module):
        def forward(self, images):
            return model(images)

    torch.testing.assert_close(
        seeded(lambda: Autoencoding().losses(Closed(), BATCH)), seeded(lambda: Autoencoding().losses(model, BATCH))
    )
    with pytest.raises(GradPivotError, match=r"Closed needs encode.*add them, or use Autoencoding\(forgets='model'\)"):
        Autoencoding().forget_loss(Closed(), BATCH, objective("hinge"))


def test_the_budget_is_a_share_of_ignorance():
    assert Autoencoding(ignorance=0.3).retain_budget == pytest.approx(0.003)


def test_labels_are_read_for_splitting():
    assert Autoencoding().target_of((IMAGES[0], 7)) == 7


@pytest.fixture
def split() -> ForgetSplit:
    images = torch.rand(48, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    data = images, torch.arange(48) % 3
    return ForgetSplit.by_class(data, data, 1)


def weights(outcome) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in outcome.model.parameters()])


def test_cup_unlearns_and_the_codes_come_from_the_loops_seeds(model, split):
    """The same seed gives the same bits, whatever the caller's generator stands at; another seed another noise."""
    method, task = (
        CUP(objective="hinge", dial="angle", momentum=0.9, max_norm=1.0, lr=0.01, epochs=2, batch_size=8),
        Autoencoding(),
    )
    runs = []
    for seed, before in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(before)
        runs.append(weights(Loop(seed=seed).run(method, model, task, split)))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_killed_and_resumed_is_uninterrupted(model, split, tmp_path):
    method, task = (
        CUP(objective="hinge", dial="angle", momentum=0.9, max_norm=1.0, lr=0.01, epochs=3, batch_size=8),
        Autoencoding(),
    )
    whole = weights(Loop(seed=0).run(method, model, task, split))

    class Killed(Exception):  # noqa: N818
        pass

    def kill(done: int, total: int) -> None:
        if done == 4:
            raise Killed

    checkpoint = tmp_path / "checkpoint.pt"
    with pytest.raises(Killed):
        Loop(seed=0, checkpoint=checkpoint, checkpoint_seconds=0, progress=kill).run(method, model, task, split)
    assert checkpoint.exists()
    steps = []
    again = Loop(seed=0, checkpoint=checkpoint, progress=lambda done, total: steps.append(done))
    assert torch.equal(weights(again.run(method, model, task, split)), whole)
    assert steps[0] > 0


def test_the_degree_is_the_share_of_knowing_nothing(model):
    task = Autoencoding()
    losses = seeded(lambda: task.losses(model, BATCH, fixed_codes=True))
    loss, degree = seeded(lambda: task.forgetting(model, BATCH, objective("hinge")))
    assert degree.tolist() == pytest.approx((losses / task.ignorance).clamp(0, 1).tolist(), rel=1e-6)
    assert loss.item() == pytest.approx(objective("hinge").of(losses, task.ignorance).item())
    assert task.loss_unit == pytest.approx(math.log(2) / math.log(10))


def test_a_run_that_nobody_judges_gives_losses(model):
    data = TensorDataset(IMAGES, LABELS)
    split = ForgetSplit.by_class(data, data, 0)
    result = unlearn(model, split, CUP(objective="hinge", epochs=1), task=Autoencoding())
    assert isinstance(result.scores, LossScores)
    assert result.scores.forget_loss > 0
    assert result.history["degree"]
    assert result.asked_ua is None
    with pytest.raises(GradPivotError, match="no scores to compare: loss"):
        result.point()


def test_a_trace_is_refused_before_its_runs(model):
    data = TensorDataset(IMAGES, LABELS)
    with pytest.raises(GradPivotError, match="a generator predicts no label"):
        trace(model, ForgetSplit.by_class(data, data, 0), CUP(objective="hinge"), task=Autoencoding())
