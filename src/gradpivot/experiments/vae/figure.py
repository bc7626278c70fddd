"""The VAE experiment: the original, one unlearned autoencoder per γ and a retrained one, with their latent maps."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from gradpivot.data import ForgetSplit
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate import Examination, GenerationScores, GeneratorScorer, Judging
from gradpivot.experiments.problem import Problem
from gradpivot.loop import Outcome, Progress
from gradpivot.models import load_weights, save_weights
from gradpivot.results import spearman
from gradpivot.runs import Prepared, Trained, train_model
from gradpivot.runtime import derive, environment, isolated
from gradpivot.tasks import Autoencoding, Classification

if TYPE_CHECKING:
    from gradpivot.evaluate import Judge
    from gradpivot.experiments.vae.recipe import VaeRecipe
    from gradpivot.methods import Method
    from gradpivot.models import VAE

__all__ = ["VaeOutcome", "latent_codes", "run_vae"]

Report = Callable[[int, int, str], None]
"""Called with (finished models, total models, current model)."""

VAE_SCHEMA = "gradpivot.vae/1"
_MAP_BATCH = 500


@dataclass(frozen=True)
class VaeOutcome:
    """Panels to draw and their numbers."""

    panels: list[dict[str, Any]]
    """Fields of :class:`gradpivot.report.paper.latent.LatentPanel`."""
    summary: dict[str, Any]


@dataclass(frozen=True)
class _FinishedModel:
    """A finished model with its run time and divergence."""

    model: nn.Module
    seconds: float
    diverged: dict[str, Any] | None


def run_vae(
    recipe: VaeRecipe, folder: Path, *, forgotten: int = 3, seed: int = 0, report: Report | None = None
) -> VaeOutcome:
    """Train, unlearn for each γ, retrain, and map the latent space of each model.

    Finished models are saved in ``folder`` and reused; an interrupted one resumes from its checkpoint.

    Args:
        recipe: Data, networks, training, method and γ.
        folder: Folder for the models.
        forgotten: The digit to forget.
        seed: Seed of all randomness.
        report: Called before every model.

    Raises:
        GradPivotError: If the classifier is not accurate enough, or training of the original diverges.
    """
    train, test = recipe.load()
    split = ForgetSplit.by_class(train, test, forgotten)
    task = Autoencoding.from_images(
        train.tensors[0][torch.from_numpy(split.forget_indices.copy())],
        train.tensors[0][torch.from_numpy(split.retain_indices.copy())],
        forgets=recipe.forgets,
    )
    autoencoder, recogniser = (
        Problem(name=recipe.name, load=recipe.load, model=model, training=training, task=of)
        for model, training, of in (
            (recipe.autoencoder, recipe.training, task),
            (recipe.recogniser, recipe.recogniser_training, Classification()),
        )
    )
    cache = _ModelCache(folder / "models", split, seed, len(recipe.gammas) + 3, report)
    classifier = cache.trained("recogniser", recogniser).model
    scorer = MapScorer(recipe, classifier, task)
    scorer.check(split)
    original = cache.trained("original", autoencoder)
    made: list[tuple[str, float | None, _FinishedModel]] = [("Original", None, original)]
    for gamma in recipe.gammas:
        method = dataclasses.replace(recipe.method, gamma=gamma)
        made.append((f"γ = {gamma:g}", gamma, cache.unlearned(autoencoder, method, original.model)))
    made.append(("Retrained", None, cache.unlearned(autoencoder, recipe.training, _new_model(autoencoder))))
    rows, panels = [], []
    for name, at, one in made:
        row = _scored_row(name, at, one, scorer, task, split)
        rows.append(row)
        panels.append(_panel(row, one, scorer.judge(split), recipe.side, forgotten))
    cache.report("done")
    return VaeOutcome(panels, _summary(recipe, split, task, seed, rows))


class MapScorer(GeneratorScorer):
    """Scores a fine map of the latent space; sampling is unconditional."""

    def __init__(self, recipe: VaeRecipe, classifier: nn.Module, task: Autoencoding) -> None:
        judging = Judging(
            classifier=f"{recipe.name}-recogniser",
            least=recipe.recogniser_least,
            reference_images=recipe.reference_images,
        )
        super().__init__(judging, classifier, task)
        self._side = recipe.judged_side

    def examine(self, model: nn.Module, split: ForgetSplit, progress: Progress | None = None) -> Examination:
        """Classify the images of the map."""
        return Examination(self.judge(split).unconditional(_map(model, self._side)))


class _ModelCache:
    """Trains and unlearns models, or loads those already saved."""

    def __init__(self, folder: Path, split: ForgetSplit, seed: int, total: int, report: Report | None) -> None:
        self._folder, self._split, self._seed = folder, split, seed
        self._done, self._total, self._report = 0, total, report

    def report(self, what: str) -> None:
        if self._report:
            self._report(self._done, self._total, what)

    def trained(self, name: str, problem: Problem) -> _FinishedModel:
        """Train a model on all data.

        Raises:
            GradPivotError: If training diverges.
        """

        def train(checkpoint: Path) -> Trained:
            found = train_model(problem, data=self._split, seed=self._seed, evaluate_every=0, checkpoint=checkpoint)
            if found.diverged:
                raise GradPivotError(f"training the {name} diverged ({found.diverged['reason']}); lower its lr")
            return found

        prepared = problem.prepared(_new_model(problem), self._split, problem.training, seed=self._seed)
        return self._load_or_make(name, prepared, train)

    def unlearned(self, problem: Problem, method: Method, model: nn.Module) -> _FinishedModel:
        """Unlearn a model; the result may have diverged."""
        prepared = problem.prepared(model, self._split, method, seed=self._seed)

        def unlearn(checkpoint: Path) -> Outcome:
            running = dataclasses.replace(prepared.running, checkpoint=checkpoint)
            return dataclasses.replace(prepared, running=running).outcome()

        return self._load_or_make(method.name, prepared, unlearn)

    def _load_or_make(self, name: str, prepared: Prepared, make: Callable[[Path], Trained | Outcome]) -> _FinishedModel:
        self.report(f"{name}: {prepared.method.label}")
        key = f"{name}-{prepared.record_key}"
        # The key keeps apart interrupted runs with different settings.
        path, checkpoint = self._folder / f"{key}.safetensors", self._folder / f"{key}.checkpoint.pt"
        if path.exists():
            kept = copy.deepcopy(prepared.model)
            facts = load_weights(kept, path)
        else:
            found = make(checkpoint)
            kept, facts = found.model, {"seconds": found.seconds, "diverged": found.diverged}
            save_weights(kept, path, facts)
            checkpoint.unlink(missing_ok=True)
        self._done += 1
        return _FinishedModel(kept.eval(), facts["seconds"], facts["diverged"])


def _new_model(problem: Problem) -> nn.Module:
    with isolated(0):
        return problem.model()


def latent_codes(side: int) -> Tensor:
    """side² two-dimensional codes, row by row from the top left: z₁ grows to the right, z₂ upwards.

    Codes lie at the normal quantiles (i + ½)/side, as in Kingma & Welling (2014, appendix A). Every cell has the same
    prior probability, so a share of the map is a share of the generated images.
    """
    quantiles = (torch.arange(side, dtype=torch.float64) + 0.5) / side
    along = torch.special.ndtri(quantiles).float()
    return torch.stack([along.repeat(side), along.flip(0).repeat_interleave(side)], 1)


@torch.no_grad()
def _map(model: VAE | nn.Module, side: int) -> Iterator[Tensor]:
    for codes in torch.split(latent_codes(side), _MAP_BATCH):
        yield model.decode(codes).sigmoid()  # type: ignore[operator]


def _scored_row(
    name: str, gamma: float | None, made: _FinishedModel, scorer: MapScorer, task: Autoencoding, split: ForgetSplit
) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "gamma": gamma, "seconds": made.seconds, "diverged": made.diverged}
    if made.diverged:
        return row
    try:
        scores = scorer.scores(made.model, split)
    except NonFiniteError as error:
        return {**row, "diverged": {"step": None, "reason": str(error)}}
    others, own = _test_losses(made.model, task, split)
    return {**row, "scores": scores.to_dict(), "others_nats": others, "forgotten_nats": own}


@torch.no_grad()
def _test_losses(model: nn.Module, task: Autoencoding, split: ForgetSplit) -> tuple[float, float]:
    """Mean −ELBO in nats per test image: other digits, forgotten digit. All models get the same noise."""
    images, labels = split.test.tensors
    with isolated(derive(0, "judge")):
        batches = zip(images.split(_MAP_BATCH), labels.split(_MAP_BATCH), strict=True)
        losses = torch.cat([task.losses(model, batch).double() for batch in batches]) * images[0].numel()
    forgotten = np.isin(split.test_labels, split.classes)
    numbers = losses.numpy()
    return float(numbers[~forgotten].mean()), float(numbers[forgotten].mean())


def _panel(row: Mapping[str, Any], made: _FinishedModel, judge: Judge, side: int, forgotten: int) -> dict[str, Any]:
    caption = "diverged"
    if not row["diverged"]:
        scores = GenerationScores.from_dict(row["scores"])
        share = 100 * scores.share_called(forgotten)
        caption = f"{share:.1f} % classified as {forgotten}; others {row['others_nats']:.1f} nats"
    images = torch.cat(list(_map(made.model, side))).nan_to_num()
    labels = judge.labels(images)
    return {
        "title": row["name"],
        "images": images[:, 0].reshape(side, side, *images.shape[-2:]).numpy(),
        "marked": (labels == forgotten).reshape(side, side),
        "caption": caption,
    }


def _summary(
    recipe: VaeRecipe, split: ForgetSplit, task: Autoencoding, seed: int, rows: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    (forgotten,) = split.classes
    dial = [
        (row["gamma"], GenerationScores.from_dict(row["scores"]).share_called(forgotten))
        for row in rows
        if row["gamma"] is not None and not row["diverged"]
    ]
    return {
        "schema": VAE_SCHEMA,
        "data": recipe.name,
        "forgotten": forgotten,
        "models": list(rows),
        "spearman": spearman([gamma for gamma, _ in dial], [share for _, share in dial]) if len(dial) > 1 else None,
        "map_images": recipe.judged_side**2,
        "ignorance_nats": task.ignorance * split.train.tensors[0][0].numel(),
        "settings": {
            "method": {**recipe.method.to_dict(), "gamma": None},
            "forgets": recipe.forgets,
            "training": recipe.training.to_dict(),
            "recogniser_training": recipe.recogniser_training.to_dict(),
        },
        "provenance": {"seed": seed, "split": split.facts(), "environment": environment()},
    }
