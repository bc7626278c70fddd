"""A dataset of four clusters in the plane, and the problem built on it."""

import torch
from sklearn.datasets import make_blobs
from torch.utils.data import TensorDataset

from gradpivot import Retrain
from gradpivot.experiments import Problem
from gradpivot.models import MLP


def load():
    """Return (train, test), any two map-style datasets."""
    centres = [(-3, 0), (3, 0), (0, 4), (0, -4)]
    points, labels = make_blobs(n_samples=1200, centers=centres, cluster_std=1.0, random_state=0)
    points, labels = torch.tensor(points, dtype=torch.float32), torch.tensor(labels)
    return TensorDataset(points[:800], labels[:800]), TensorDataset(points[800:], labels[800:])


def clusters() -> Problem:
    """Entry point of --problem."""
    return Problem(
        name="clusters",
        load=load,
        model=lambda: MLP((2, 32, 4)),  # a new, untrained model
        training=Retrain(lr=0.05, epochs=20, batch_size=32),  # how the original is trained
        settings={"batch_size": 16},  # defaults for methods on this problem
    )
