"""The paper's Figure 1: five Gaussians, a 2-16-16-5 network, class 2 forgotten by GA, WS and CUP.

The paper says "one-layer network with 16 neurons"; one hidden layer of 16 does not give its figure reliably, two do
(docs/paper-notes.md). Full-batch Adam at 1e-2: 100 steps of training, 20 of unlearning.
"""

from __future__ import annotations

from gradpivot.data import load_gaussians
from gradpivot.experiments.problem import Problem
from gradpivot.methods import CUP, GA, WS, Method, Retrain
from gradpivot.models import MLP

__all__ = ["FORGOTTEN", "toy", "toy_methods"]

FORGOTTEN = 2
"""Counted from 0: the cluster at (5.5, 4)."""


def toy() -> Problem:
    """The problem."""
    return Problem(
        name="toy",
        load=load_gaussians,
        model=MLP,
        training=Retrain(lr=1e-2, epochs=100, batch_size=2000, optimizer="adam", weight_decay=0.0, schedule="constant"),
    )


def toy_methods() -> dict[str, Method]:
    """The three panels beside the original, in the paper's protocol: −CE, no length limit, w_f = w_r = 1, γ = 0.7."""
    shared = {
        "lr": 1e-2, "epochs": 20, "batch_size": 2000, "retain_batch_size": 2000, "optimizer": "adam",
        "weight_decay": 0.0,
    }  # fmt: skip
    return {
        "Gradient ascent": GA.protocol("paper", **shared),
        "Weighted scalarisation": WS.protocol("paper", **shared),
        "CUP, γ = 0.7": CUP.protocol("paper", gamma=0.7, **shared),
    }
