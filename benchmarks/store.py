"""A store of 100,000 runs: how long it takes to index it, and to read it once it is indexed.

    python benchmarks/store.py [--runs 100000] [--folder FOLDER]

The runs are made, not run: random scores on 10 classes, 5 seeds, 2 protocols and as many series of 20 settings as it
takes. With --folder the store stays, to try 'gradpivot compare FOLDER' on it.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gradpivot.evaluate.scores import Scores
from gradpivot.frontier.frontier import Point
from gradpivot.frontier.record import Record
from gradpivot.sweep.cell import digest_of
from gradpivot.sweep.store import Store

CLASSES, SEEDS, SETTINGS, PROTOCOLS = 10, 5, 20, ("paper", "clean")


def made_scores(draw: random.Random) -> Scores:
    forgotten = draw.random()
    return Scores(
        ra=1 - 0.2 * draw.random() * forgotten, ua=forgotten, ta=0.95 - 0.2 * draw.random() * forgotten,
        mia=min(1.0, forgotten + 0.1 * draw.random()), mia_svc=forgotten, mia_svc_accuracy=0.6,
        mia_svc_determined=True, n_forget=5000, n_retain=45000, n_test=9000,
    )  # fmt: skip


def made_records(runs: int) -> Iterator[Record]:
    draw = random.Random(0)
    series = max(1, runs // (CLASSES * SEEDS * SETTINGS * len(PROTOCOLS)))
    places = [(forget, seed) for seed in range(SEEDS) for forget in range(CLASSES)]
    rows = [("original", "", "Original", 1), ("retrained", "", "Retrain", 1)]
    rows += [("run", protocol, f"Method {i}", SETTINGS) for protocol in PROTOCOLS for i in range(series)]
    for forget, seed in places:
        for role, protocol, name, settings in rows:
            for setting in range(settings):
                method = {"method": "cup", "gamma": setting / SETTINGS, "lr": 1e-3}
                point = Point(label=f"{name}({setting})", settings=method, scores=made_scores(draw),
                              knob=setting / SETTINGS, seconds=draw.random())  # fmt: skip
                yield Record(
                    key=digest_of([forget, seed, role, protocol, name, setting]), problem="made", kind="class",
                    forget=str(forget), seed=seed, role=role, protocol=protocol, series=name, method="cup",
                    point=point, provenance={"environment": {"date": "made"}},
                )  # fmt: skip


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--runs", type=int, default=100_000)
    words.add_argument("--folder", type=Path)
    chosen = words.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.folder or Path(scratch) / "store"
        store = Store(folder, create=True)
        # Made runs need not survive a power cut.
        os.fsync = lambda handle: None
        told = {}
        for name, work in (
            ("write", lambda: [store._records.put(r.key, r.to_dict()) for r in made_records(chosen.runs)]),
            ("index", store.records),
            ("read, indexed", store.records),
            ("check every file", store.check),
        ):
            started = time.perf_counter()
            done = work()
            told[name] = time.perf_counter() - started
            print(f"{name:18} {told[name]:6.2f} s", f"({len(done)} runs)" if isinstance(done, list) else done)
        print(f"indexed against not: {told['index'] / told['read, indexed']:.1f} times faster")


if __name__ == "__main__":
    main()
