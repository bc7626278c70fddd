"""The paper's Figure 1: five Gaussians, a 2-16-16-5 network, class 2 forgotten by GA, WS and CUP.

The paper says "one-layer network with 16 neurons"; its figure reproduces reliably only with two hidden layers of 16
(docs/paper-notes.md). Full-batch Adam at 1e-2: 100 training steps, 20 unlearning steps.
"""

from __future__ import annotations

from gradpivot.data import load_gaussians
from gradpivot.experiments.problem import Problem
from gradpivot.methods import CUP, GA, WS, Method, Retrain
from gradpivot.models import MLP

__all__ = ["FORGOTTEN", "toy", "toy_methods"]

FORGOTTEN = 2
"""Zero-based: the cluster at (5.5, 4)."""


def toy() -> Problem:
    """Five Gaussians and a small MLP."""
    return Problem(
        name="toy",
        load=load_gaussians,
        model=MLP,
        training=Retrain(lr=1e-2, epochs=100, batch_size=2000, optimizer="adam", weight_decay=0.0, schedule="constant"),
    )


def toy_methods() -> dict[str, Method]:
    """The methods of the figure in the paper's protocol: −CE, no gradient clipping, w_f = w_r = 1, γ = 0.7."""
    shared = {
        "lr": 1e-2, "epochs": 20, "batch_size": 2000, "retain_batch_size": 2000, "optimizer": "adam",
        "weight_decay": 0.0,
    }  # fmt: skip
    return {
        "Gradient ascent": GA.protocol("paper", **shared),
        "Weighted scalarisation": WS.protocol("paper", **shared),
        "CUP, γ = 0.7": CUP.protocol("paper", gamma=0.7, **shared),
    }
