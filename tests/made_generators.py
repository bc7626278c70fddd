"""Made records of generators: four classes, the last of which is forgotten, with small made sheets."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradpivot.data.readers.png import encode_rgb
from gradpivot.evaluate.generators.pictures import Pictures
from gradpivot.evaluate.generators.scores import Frechet, GenerationScores
from gradpivot.results.frontier import Point
from gradpivot.results.record import Record

FORGOTTEN, CLASSES = 3, (0, 1, 2, 3)
FEATURES = "in-domain toy"


def made_scores(still: float, kept: float = 0.98, fid: float = 10.0, n: int = 200, **changes: Any) -> GenerationScores:
    """Shares of whole images, as real ones are; what is not recognised is called the next class."""
    called = []
    for name in CLASSES:
        right = round((still if name == FORGOTTEN else kept) * n)
        row = [0, 0, 0, 0]
        row[name], row[(name + 1) % 4] = right, n - right
        called.append(tuple(row))
    values: dict[str, Any] = {
        "called": tuple(called), "asked": CLASSES, "forgotten": (FORGOTTEN,), "classifier_accuracy": 0.9931,
        "frechet": (Frechet(fid, FEATURES, 3 * n, 1500),), "rescale": 100.0,
    }  # fmt: skip
    return GenerationScores(**{**values, **changes})


def made_pictures(still: float, columns: int = 5, side: int = 6) -> Pictures:
    """A sheet whose first row pales as the class is forgotten; every picture has its own colour."""
    rows = (FORGOTTEN, 0, 1, 2)
    sheet = np.zeros((len(rows) * side, columns * side, 3), np.uint8)
    for row in range(len(rows)):
        for column in range(columns):
            light = round(255 * still) if row == 0 else 200
            cell = sheet[row * side : (row + 1) * side, column * side : (column + 1) * side]
            cell[1:-1, 1:-1] = (light, 40 * row, 30 * column)
    return Pictures(png=base64.b64encode(encode_rgb(sheet)).decode(), rows=rows, columns=columns)


def made_record(role: str = "run", still: float | None = 0.5, **changes: Any) -> Record:
    """A run after which ``still`` of the forgotten class's images is recognised; None for one that diverged."""
    name = {"original": "Original", "retrained": "Retrain"}.get(role, "CUP")
    values: dict[str, Any] = {
        "problem": "toy-ddpm", "kind": "class", "forget": str(FORGOTTEN), "seed": 0, "role": role, "series": name,
        "protocol": "clean" if role == "run" else "", "method": name.lower(),
    }  # fmt: skip
    point: dict[str, Any] = {"label": name, "settings": {}, "seconds": 10.0, "knob": None}
    point |= {key: changes.pop(key) for key in tuple(changes) if key in point}
    scored = {key: changes.pop(key) for key in ("kept", "fid", "n", "frechet", "rescale") if key in changes}
    drawn = changes.pop("drawn", True)
    values |= changes
    key = values.pop("key", None) or repr((sorted(values.items(), key=str), point, still, scored))
    if still is None:
        lost = {"step": 7, "reason": "loss is not finite"}
        found = Point(scores=GenerationScores.of_diverged([FORGOTTEN]), diverged=lost, **point)
    else:
        found = Point(scores=made_scores(still, **scored), **point)
    pictures = made_pictures(still) if drawn and still is not None else None
    return Record(key=key, point=found, pictures=pictures, **values)


def cup(gamma: float, still: float | None, **changes: Any) -> Record:
    """A run of CUP."""
    settings = {"gamma": gamma, **changes.pop("settings", {"lr": 0.001})}
    return made_record("run", still, knob=gamma, settings=settings, label=f"CUP(gamma={gamma:g})", **changes)


def salun(share: float, still: float | None, **changes: Any) -> Record:
    """A run of SalUn, whose knob, the learning rate, is the same in all."""
    settings = {"lr": 0.001, "share": share}
    place = {"series": "SalUn", "method": "salun", "knob": 0.001, "settings": settings, "seconds": 20.0}
    return made_record("run", still, label=f"SalUn(share={share:g})", **{**place, **changes})


GAMMAS = (0.0, 0.25, 0.5, 0.75, 1.0)


def made_sweep(seeds: Sequence[int] = (0,), **changes: Any) -> list[Record]:
    """Original, retrained, five γ of CUP, three settings of SalUn and three of SA, one of which diverged."""
    found = []
    for seed in seeds:
        place = {"seed": seed, **changes}
        shift = 0.01 * seed
        found.append(made_record("original", 0.98, fid=5.0, seconds=0.0, **place))
        found.append(made_record("retrained", 0.0, kept=0.97, fid=6.0, seconds=300.0, **place))
        for gamma in reversed(GAMMAS):
            still = (1 - gamma) * 0.96 + shift
            found.append(cup(gamma, still, kept=0.98 - 0.04 * gamma, fid=6 + 4 * gamma, **place))
        for share, still in ((0.9, 0.1), (0.1, 0.7), (0.5, 0.4)):
            found.append(salun(share, still + shift, kept=0.9, fid=12.0, **place))
        for penalty, still in ((1.0, 0.5), (10.0, None), (0.1, 0.2)):
            found.append(
                made_record("run", still, series="SA", method="sa", knob=penalty, settings={"penalty": penalty},
                            seconds=100.0 if still else 3.0, kept=0.8, fid=30.0, label=f"SA({penalty})", **place)
            )  # fmt: skip
    return found
