"""Regression: a task of one's own, with its scorer."""

from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch.nn.functional import mse_loss

from gradpivot.evaluate import Scorer
from gradpivot.tasks import Forgetting, GradualTask

NEAR = 0.5
"""A prediction within this distance of the truth is right."""


class Regression(GradualTask):
    """Predicts a number; forgotten is what it predicts no better than the mean of all."""

    predicts = False  # no label, so no accuracy of the usual kind

    def target_of(self, sample):
        return float(sample[1])

    def retain_loss(self, model, batch):
        inputs, truth = batch
        return mse_loss(model(inputs)[:, 0], truth)

    def forget_loss(self, model, batch, objective):
        predicted = model(batch[0])[:, 0]
        return mse_loss(predicted, torch.zeros_like(predicted))  # the mean of standardised targets

    def forgetting(self, model, batch, objective):
        """L_f, and whether each sample is forgotten: what the dial steers by."""
        inputs, truth = batch
        wrong = ((model(inputs)[:, 0] - truth).abs() > NEAR).double()
        return Forgetting(self.forget_loss(model, batch, objective), wrong.detach())

    def scorer(self):
        return Nearness()


@dataclass(frozen=True)
class NearnessScores:
    """Shares of predictions that are right (retained) and wrong (forgotten)."""

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
    """Scores by how many predictions are near the truth."""

    metrics = steerable = ("ra", "ua")

    @torch.no_grad()
    def scores(self, model, split):
        def right(indices):
            inputs, truth = (part[np.array(indices)] for part in split.train.tensors)
            return float(((model.eval()(inputs)[:, 0] - truth).abs() <= NEAR).double().mean())

        return NearnessScores(right(split.retain_indices), 1 - right(split.forget_indices))

    def of_diverged(self, split):
        return NearnessScores(0.0, 0.0)
