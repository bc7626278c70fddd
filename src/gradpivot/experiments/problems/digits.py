"""The built-in problem: a small CNN on 8×8 handwritten digits, offline, a third of a second per run."""

from __future__ import annotations

from gradpivot.data import load_digits
from gradpivot.experiments.problem import Problem
from gradpivot.methods import CUP, GA, WS, Method, Retrain
from gradpivot.models import Images, SmallCNN

__all__ = ["GAMMAS", "demo_series", "digits", "study_series"]

BATCH_SIZE = 8
"""146 samples of a class in batches of 8 give 19 steps per epoch, close to CIFAR-10's 5,000 in batches of 256."""

GAMMAS = tuple(round(0.1 * i, 1) for i in range(11))
"""0, 0.1, …, 1."""


def digits() -> Problem:
    """A small CNN on 8×8 digits."""
    return Problem(
        name="digits",
        load=load_digits,
        model=SmallCNN,
        training=Retrain(lr=0.05, epochs=30, batch_size=64, momentum=0.9, weight_decay=5e-4, schedule="cosine"),
        settings={"batch_size": BATCH_SIZE},
        images=Images(channels=1, size=8, classes=10, stored="floats"),
    )


def demo_series() -> dict[str, list[Method]]:
    """Methods of the demo: eleven settings each with our defaults, and CUP as printed.

    WS and GA use eleven log-spaced values over the paper's ranges.
    """
    weights = [round(10 ** (-4 + 4.7 * i / 10), 5) for i in range(11)]
    rates = [round(10 ** (-4 + 2 * i / 10), 6) for i in range(11)]
    return {
        "CUP": [CUP(gamma=gamma, batch_size=BATCH_SIZE) for gamma in GAMMAS],
        "WS": [WS(forget_weight=weight, batch_size=BATCH_SIZE) for weight in weights],
        "GA": [GA(lr=rate, batch_size=BATCH_SIZE) for rate in rates],
        "CUP as printed": [CUP.protocol("paper", gamma=gamma, batch_size=BATCH_SIZE) for gamma in GAMMAS],
    }


def study_series() -> dict[str, list[Method]]:
    """The paper's 20 settings of each method in both protocols, and the dial: eleven γ at the default learning rate."""
    series: dict[str, list[Method]] = {}
    for protocol, suffix in (("clean", ""), ("paper", " as printed")):
        for kind in (CUP, WS, GA):
            series[f"{kind.title}{suffix}"] = list(kind.space(protocol, batch_size=BATCH_SIZE))
        series[f"CUP dial{suffix}"] = [CUP.protocol(protocol, gamma=gamma, batch_size=BATCH_SIZE) for gamma in GAMMAS]
    return series
