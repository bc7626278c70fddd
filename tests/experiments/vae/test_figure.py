"""The VAE experiment on a small part of the 8×8 digits: what it tells, and that nothing is done twice."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.generators.scores import GenerationScores
from gradpivot.experiments.vae.figure import latent_codes, run_vae
from gradpivot.experiments.vae.recipe import VaeRecipe, vae_recipe
from gradpivot.loop.loop import Loop


def quick(**changes) -> VaeRecipe:
    recipe = vae_recipe("small")
    return replace(
        recipe,
        training=replace(recipe.training, epochs=4),
        recogniser_training=replace(recipe.recogniser_training, epochs=2),
        method=replace(recipe.method, epochs=3),
        recogniser_least=0.5,
        gammas=(0.0, 1.0),
        side=5,
        judged_side=10,
        **changes,
    )


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vae")
    return run_vae(quick(), folder), folder


def test_the_map_is_of_equal_shares_of_the_prior():
    codes = latent_codes(4).reshape(4, 4, 2)
    np.testing.assert_allclose(torch.special.ndtr(codes[0, :, 0]), [0.125, 0.375, 0.625, 0.875], rtol=1e-5)
    assert torch.equal(codes[0, :, 0], codes[3, :, 0])
    assert torch.equal(codes[:, 0, 1], codes[:, 3, 1])
    assert bool((codes[:-1, 0, 1] > codes[1:, 0, 1]).all()), "z₂ grows upwards, and the first row is on top"


@pytest.mark.numeric
def test_numbers_and_panels_of_every_model(first):
    outcome, _ = first
    told = json.loads(json.dumps(outcome.summary))
    names = [row["name"] for row in told["models"]]
    assert names == ["Original", "γ = 0", "γ = 1", "Retrained"] == [p["title"] for p in outcome.panels]
    for row in told["models"]:
        scores = GenerationScores.from_dict(row["scores"])
        assert scores.n == told["map_images"] == 100
        assert scores.frechet[0].features == "in-domain digits-recogniser"
        assert scores.frechet[0].n_reference == 1437 - 146
        assert row["others_nats"] > 0
        assert row["seconds"] > 0
    assert told["forgotten"] == 3
    assert told["models"][2]["forgotten_nats"] > told["models"][0]["forgotten_nats"] + 1
    assert told["ignorance_nats"] > told["models"][0]["forgotten_nats"]
    for panel in outcome.panels:
        assert panel["images"].shape == (5, 5, 8, 8)
        assert panel["marked"].shape == (5, 5)


def test_finished_models_are_not_made_again(first, monkeypatch):
    outcome, folder = first

    def refuse(*args, **kwargs):
        raise AssertionError("a finished model was made again")

    monkeypatch.setattr(Loop, "run", refuse)
    again = run_vae(quick(), folder)
    assert again.summary == outcome.summary
    for before, after in zip(outcome.panels, again.panels, strict=True):
        np.testing.assert_array_equal(before["images"], after["images"])
    with pytest.raises(AssertionError, match="made again"):
        run_vae(replace(quick(), gammas=(0.0, 0.5)), folder)


@pytest.mark.slow
def test_killed_on_the_way_it_ends_with_the_same_numbers(first, tmp_path, monkeypatch):
    """Killed in the middle of one model, with others done: only what is missing is computed."""
    outcome, _ = first

    class Killed(Exception):  # noqa: N818
        pass

    run, ran = Loop.run, []

    def run_and_kill(loop, method, *args, key, **kwargs):
        ran.append(key)
        if len(ran) == 3:
            loop.checkpoint_seconds = 0
            loop.progress = kill
        return run(loop, method, *args, key=key, **kwargs)

    def kill(done, total):
        if done == total // 2:
            raise Killed

    monkeypatch.setattr(Loop, "run", run_and_kill)
    with pytest.raises(Killed):
        run_vae(quick(), tmp_path)
    models = tmp_path / "models"
    assert len(list(models.glob("cup-*.checkpoint.pt"))) == 1
    assert len(list(models.glob("*.safetensors"))) == 2
    again = run_vae(quick(), tmp_path)
    assert ran[3] == ran[2]
    assert not set(ran[:2]) & set(ran[3:])
    assert not list((tmp_path / "models").glob("*.checkpoint.pt"))
    timeless = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in o.summary["models"]] for o in (outcome, again)
    ]
    assert timeless[0] == timeless[1]


def test_a_classifier_that_cannot_judge_is_refused(first):
    _, folder = first
    with pytest.raises(GradPivotError, match=r"it needs at least 99.9 %"):
        run_vae(replace(quick(), recogniser_least=0.999), folder)


def test_a_model_that_diverged_is_told_and_drawn(first):
    _, folder = first
    recipe = vae_recipe("small", "paper")
    wild = replace(recipe.method, lr=1e6, epochs=2)
    recipe = replace(quick(), method=wild, forgets="model", gammas=(1.0,))
    outcome = run_vae(recipe, folder)
    assert outcome.summary["models"][1]["diverged"]
    assert outcome.summary["spearman"] is None
    assert outcome.panels[1]["caption"] == "diverged"
    assert np.isfinite(outcome.panels[1]["images"]).all()


def test_the_papers_form_is_minus_elbo_in_the_whole_model():
    recipe = vae_recipe("full", "paper")
    assert (recipe.method.objective, recipe.forgets, recipe.method.max_norm) == ("negative_ce", "model", None)
    clean = vae_recipe("full")
    assert (clean.method.objective, clean.forgets) == ("hinge", "decoder")
    with pytest.raises(GradPivotError, match="choose full or small"):
        vae_recipe("tiny")


def test_progress_is_told_model_by_model(first):
    _, folder = first
    told = []
    run_vae(quick(), folder, report=lambda done, total, what: told.append((done, total)))
    assert told == [(i, 5) for i in range(6)]
