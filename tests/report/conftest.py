"""A synthetic but realistic comparison, and a browser if the machine has one."""

from __future__ import annotations

import math
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradpivot.evaluate.scores import Scores
from gradpivot.results.comparison import Comparison
from gradpivot.results.frontier import Frontier, Point

SIZES = {"n_forget": 146, "n_retain": 1291, "n_test": 324}
BROWSER_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def make_scores(ra: float, ua: float, ta: float, mia: float, **changes: Any) -> Scores:
    """Scores as shares of whole samples, as real ones are."""
    values = {
        "ra": round(ra * 1291) / 1291, "ua": round(ua * 146) / 146, "ta": round(ta * 324) / 324,
        "mia": round(mia * 146) / 146, "mia_svc": round(max(0.0, mia - 0.05) * 146) / 146,
        "mia_svc_accuracy": 0.52 + 0.1 * ua, "mia_svc_determined": ua > 0.3,
    }  # fmt: skip
    return Scores(**{**values, **SIZES, **changes})


def make_history(gamma: float, steps: int = 90) -> dict[str, list[float | None]]:
    """Telemetry of a run: gradients agree at first, then pull apart the sooner the larger γ is."""
    noise = random.Random(f"history {gamma}")
    cosine = [
        max(-0.98, min(0.98, 0.35 - (0.4 + 1.1 * gamma) * (1 - math.exp(-t / 25)) + noise.gauss(0, 0.06)))
        for t in range(steps)
    ]
    history: dict[str, list[float | None]] = {"step": [float(t) for t in range(steps)], "cosine": [*cosine]}
    history["cosine"][7] = None  # a step whose gradient vanished has no angle
    history["conflict"] = [float(c < 0) for c in cosine]
    history["forget_loss"] = [2.0 * math.exp(-gamma * t / 20) for t in range(steps)]
    history["retain_loss"] = [0.02 + 0.001 * gamma * t for t in range(steps)]
    history["delta_forget"] = [-gamma * 1e-3 + noise.gauss(0, 2e-4) for _ in range(steps)]
    history["delta_retain"] = [-(1 - gamma) * 1e-3 + noise.gauss(0, 2e-4) for _ in range(steps)]
    return history


def cup_point(gamma: float, shift: float = 0.0) -> Point:
    """CUP: UA rises along γ while RA pays late and little."""
    ua = 1 / (1 + math.exp(-16 * (gamma - 0.28 - shift)))
    ra = 1 - 0.03 * max(0.0, gamma - 0.4) ** 2 - 0.0004 * gamma - 0.3 * shift * gamma**3
    scores = make_scores(ra, ua, 0.965 - 0.05 * gamma**3, min(1.0, 0.04 + ua))
    settings = {"gamma": gamma, "lr": 0.01, "epochs": 5}
    return Point(label=f"CUP(gamma={gamma:g})", settings=settings, scores=scores, knob=gamma,
                 seconds=0.61 + 0.02 * gamma, history=make_history(gamma))  # fmt: skip


def ws_point(weight: float) -> Point:
    """Weighted scalarisation: jumps from keeping to destroying."""
    ua = 1 / (1 + math.exp(-40 * (weight - 0.33)))
    ra = 1 - 0.9 * max(0.0, weight - 0.3) ** 1.5
    scores = make_scores(ra, ua, 0.965 - 0.8 * max(0.0, weight - 0.3) ** 1.5, min(1.0, 0.03 + ua))
    return Point(label=f"WS(forget_weight={weight:g})", settings={"forget_weight": weight}, scores=scores,
                 knob=weight, seconds=0.58, history=make_history(0.5))  # fmt: skip


def ga_point(index: int) -> Point:
    """Gradient ascent: forgets everything at once, and runs away at the two largest rates."""
    lr = 1e-4 * 2**index
    settings = {"lr": lr}
    if index >= 8:
        return Point(label=f"GA(lr={lr:g})", settings=settings, scores=Scores.of_diverged(), knob=lr,
                     seconds=0.11, diverged={"step": 31 - index, "reason": "loss is not finite"})  # fmt: skip
    ua, ra = min(1.0, 0.02 + 0.17 * index), 1 - 0.012 * index**2
    scores = make_scores(ra, ua, ra - 0.03, ua)
    return Point(label=f"GA(lr={lr:g})", settings=settings, scores=scores, knob=lr, seconds=0.12)


def make_comparison(**changes: Any) -> Comparison:
    """Eleven γ, ten WS and ten GA runs (two diverged) on digits without class 3."""
    retrained = Point(label="Retrain()", settings={"epochs": 40}, seconds=4.2,
                      scores=make_scores(1.0, 1.0, 0.9753, 1.0))  # fmt: skip
    original = Point(label="original", settings={}, scores=make_scores(1.0, 0.0, 0.9722, 0.0342))
    gammas = [i / 10 for i in range(11)]
    frontiers = [
        Frontier(name="CUP", method="cup", knob="gamma", points=[cup_point(g) for g in gammas],
                 reference=retrained.scores),
        Frontier(name="WS", method="ws", knob="forget_weight", reference=retrained.scores,
                 points=[ws_point((i + 0.5) / 10) for i in range(10)]),
        Frontier(name="GA", method="ga", knob="lr", reference=retrained.scores,
                 points=[ga_point(i) for i in range(10)]),
    ]  # fmt: skip
    values: dict[str, Any] = {
        "title": "Digits without class 3",
        "problem": {"name": "digits", "kind": "class", "classes": [3], "hash": "5f3c9a0d", "sizes": SIZES},
        "original": original,
        "retrained": retrained,
        "frontiers": frontiers,
        "provenance": {
            "gradpivot": "0.2.0", "torch": "2.13.0", "python": "3.11.7", "machine": "x86_64, 2 cores",
            "seed": 0, "date": "2026-11-15T20:35:00Z", "command": "gradpivot demo --forget 3 --out demo",
            "settings": {"lr": 0.01, "epochs": 5, "batchnorm": "frozen", "objective": "bounded"},
        },
    }  # fmt: skip
    return Comparison(**{**values, **changes})


@pytest.fixture
def comparison() -> Comparison:
    """The comparison most tests draw."""
    return make_comparison()


@pytest.fixture
def build() -> Any:
    """The builder, for tests that change a part: ``build(retrained=None)``."""
    return make_comparison


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium through playwright."""
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    path = next((found for name in names if name and (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=BROWSER_FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Open a written page; afterwards nothing may have been asked for and nothing complained about."""
    contexts, complaints, requests, pages = [], [], [], set()

    def go(path: Path, width: int = 1280, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        pages.add(path.as_uri())
        tab = context.new_page()
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("dialog", lambda dialog: complaints.append(dialog.message))
        tab.goto(path.as_uri())
        tab.wait_for_selector("html[data-ready]", timeout=60_000)
        return tab

    yield go
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in requests if url not in pages] == []


@pytest.fixture(scope="session")
def until() -> Callable[[Any, str], None]:
    """Wait until a JavaScript expression is true.

    Asked again and again from here: playwright's own way evaluates text inside the page when it asks a second time,
    which the page's policy forbids.
    """

    def wait(tab: Any, expression: str) -> None:
        deadline = time.monotonic() + 30
        while not tab.evaluate(expression):
            assert time.monotonic() < deadline, expression
            tab.wait_for_timeout(20)

    return wait
