"""Made records of finished runs, for stores."""

from __future__ import annotations

from dataclasses import replace

from gradpivot.evaluate.scores import Scores
from gradpivot.results.frontier import Point
from gradpivot.results.record import Record
from gradpivot.sweep.cell import digest_of

SCORES = Scores(
    ra=0.9, ua=0.8, ta=0.7, mia=0.6, mia_svc=0.5, mia_svc_accuracy=0.9, mia_svc_determined=True,
    n_forget=3, n_retain=4, n_test=5,
)  # fmt: skip


def finished_run(number: int, ua: float = 0.8) -> Record:
    """A run under a key of its own, whose series has a line separator in its name."""
    return Record(
        key=digest_of(number), problem="p", kind="class", forget="3", seed=number, role="run", protocol="clean",
        series="CUP \u2028 of two lines", method="cup",
        point=Point(label="CUP", settings={"method": "cup"}, scores=replace(SCORES, ua=ua), knob=0.5, seconds=0.25),
        provenance={"timing": {"total": 1.5}},
    )  # fmt: skip
