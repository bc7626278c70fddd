"""A regression task and its scorer."""

from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch.nn.functional import mse_loss

from gradpivot.evaluate import Scorer
from gradpivot.tasks import Forgetting, GradualTask

NEAR = 0.5
"""A prediction within this distance of the target is correct."""


class Regression(GradualTask):
    """Predicts a number. A forgotten sample is predicted no better than by the mean target."""

    predicts = False  # no labels, so no classification accuracy

    def target_of(self, sample):
        return float(sample[1])

    def retain_loss(self, model, batch):
        inputs, target = batch
        return mse_loss(model(inputs)[:, 0], target)

    def forget_loss(self, model, batch, objective):
        predicted = model(batch[0])[:, 0]
        return mse_loss(predicted, torch.zeros_like(predicted))  # the mean of standardised targets

    def forgetting(self, model, batch, objective):
        """Return L_f and whether each sample is forgotten, which steers the dial."""
        inputs, target = batch
        wrong = ((model(inputs)[:, 0] - target).abs() > NEAR).double()
        return Forgetting(self.forget_loss(model, batch, objective), wrong.detach())

    def scorer(self):
        return Nearness()


@dataclass(frozen=True)
class NearnessScores:
    """Fraction of correct predictions (retain set) and wrong predictions (forget set)."""

    ra: float
    ua: float
    metrics = ("ra", "ua")

    def vector(self, metrics=metrics):
        return tuple(getattr(self, name) for name in metrics)

    def interval(self, metric):
        return (0.0, 1.0)

    def to_dict(self):
        return asdict(self)


class Nearness(Scorer):
    """Scores a model by how many predictions are close to the target."""

    metrics = steerable = ("ra", "ua")

    @torch.no_grad()
    def scores(self, model, split):
        def right(indices):
            inputs, target = (part[np.array(indices)] for part in split.train.tensors)
            return float(((model.eval()(inputs)[:, 0] - target).abs() <= NEAR).double().mean())

        return NearnessScores(right(split.retain_indices), 1 - right(split.forget_indices))

    def of_diverged(self, split):
        return NearnessScores(0.0, 0.0)
