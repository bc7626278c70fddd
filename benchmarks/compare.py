"""How long a comparison takes: a store of made runs is indexed and read, and told as JSON, Markdown, LaTeX, CSV, page.

    python benchmarks/compare.py [--records 100000] [--store FOLDER] [--out FOLDER]

The records are drawn at random around a trade-off curve, with a few diverged runs; they mean nothing. With --store the
store stays, to try 'gradpivot compare FOLDER' on it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gradpivot.evaluate.scores import Scores
from gradpivot.report import STANDINGS
from gradpivot.results._standings import standings
from gradpivot.results.frontier import Point
from gradpivot.results.record import Record, Role
from gradpivot.sweep.cell import digest_of
from gradpivot.sweep.store.store import Store

SERIES = ("GA", "WS", "RL", "IU", "BE", "BS", "l1-sparse", "SalUn", "CUP", "DCGD (avg)")
CLASSES, SEEDS, RUNS = 10, 5, 20


def made_scores(draw: random.Random, ra: float, ua: float) -> Scores:
    def near(value: float) -> float:
        return min(1.0, max(0.0, value + draw.gauss(0, 0.01)))

    return Scores(
        ra=near(ra), ua=near(ua), ta=near(ra - 0.05), mia=near(ua), mia_svc=near(ua),
        mia_svc_accuracy=0.6, mia_svc_determined=draw.random() < 0.8,
        n_forget=5000, n_retain=45000, n_test=9000,
    )  # fmt: skip


def made_point(draw: random.Random, series: str, run: int) -> Point:
    """A run on a grid of ten knob values and two learning rates."""
    knob, lr = (run % 10) / 9, (0.01, 0.001)[run // 10 % 2]
    dial = "gamma" if series == "CUP" else "forget_weight"
    settings = {"method": series.lower(), dial: knob, "lr": lr, "epochs": 5, "batch_size": 128,
                "optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.0}  # fmt: skip
    label = f"{series}({dial}={knob:.2f}, lr={lr})"
    if draw.random() < 0.01:
        lost = {"step": 7, "reason": "loss is not finite"}
        return Point(label=label, settings=settings, scores=Scores.of_diverged(), knob=knob, seconds=1.0,
                     diverged=lost)  # fmt: skip
    skill = 0.02 * (sum(map(ord, series)) % 7)
    scores = made_scores(draw, 1 - skill - 0.1 * knob**3, min(1.0, knob * 1.2))
    return Point(label=label, settings=settings, scores=scores, knob=knob, seconds=draw.uniform(5, 20))


def made_records(count: int, seed: int = 0) -> Iterator[Record]:
    """As many records as asked for: problems of two protocols, ten classes and five seeds until there are enough."""
    draw = random.Random(seed)
    made = 0

    def record(role: Role, problem: str, place: tuple[int, int], protocol: str, series: str, point: Point) -> Record:
        return Record(key=digest_of(made), problem=problem, kind="class", forget=str(place[0]), seed=place[1],
                      role=role, protocol=protocol, series=series, method=series.lower(), point=point)  # fmt: skip

    for number in range(count):
        problem = "cifar10" if number == 0 else f"made-{number}"
        for place in ((c, s) for c in range(CLASSES) for s in range(SEEDS)):
            for role, label, ua in (("original", "Original", 0.02), ("retrained", "Retrain", 1.0)):
                if made == count:
                    return
                scores = made_scores(draw, 1.0, ua)
                point = Point(label=label, settings={}, scores=scores, seconds=3000.0)
                yield record(role, problem, place, "", label, point)  # type: ignore[arg-type]
                made += 1
            for protocol in ("paper", "clean"):
                for series in SERIES:
                    for run in range(RUNS):
                        if made == count:
                            return
                        yield record("run", problem, place, protocol, series, made_point(draw, series, run))
                        made += 1


def timed(name: str, call: Callable[[], Any]) -> Any:
    start, cpu = time.perf_counter(), time.process_time()
    result = call()
    size = f", {len(result) / 1e6:.2f} MB" if isinstance(result, str) else ""
    print(f"{name:16} {time.perf_counter() - start:6.2f} s ({time.process_time() - cpu:.2f} s of CPU){size}")
    return result


def through_a_store(made: list[Record], folder: Path) -> list[Record]:
    """The records as a store gives them back, with the time of each way."""
    store = Store(folder, create=True)
    # Made runs need not survive a power cut.
    os.fsync = lambda handle: None
    timed("written", lambda: [store._records.put(record.key, record.to_dict()) for record in made])
    timed("checked", store.check)
    timed("indexed and read", store.records)
    return timed("read again", store.records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--store", type=Path, help="keep the store here")
    parser.add_argument("--out", type=Path, help="also write the exports here")
    chosen = parser.parse_args()
    made = timed("made", lambda: list(made_records(chosen.records)))
    with tempfile.TemporaryDirectory() as scratch:
        records = through_a_store(made, chosen.store or Path(scratch) / "store")
    start, cpu = time.perf_counter(), time.process_time()
    found = timed("standings", lambda: standings(records))
    json.loads(timed("json", lambda: STANDINGS.json(found)))
    texts = {"md": timed("markdown", lambda: STANDINGS.markdown(found))}
    spent = f"{time.perf_counter() - start:6.2f} s ({time.process_time() - cpu:.2f} s of CPU)"
    sets = sum(len(row.sets) for t in found.tables for row in t.series)
    print(f"{'together':16} {spent} for {len(records):,} records, {len(found.tables)} tables, {sets:,} sets")
    texts["tex"] = timed("latex", lambda: STANDINGS.latex(found))
    texts["csv"] = timed("csv", lambda: STANDINGS.csv(found))
    texts["html"] = timed("page", lambda: STANDINGS.html(found))
    for suffix, text in texts.items():
        if chosen.out:
            chosen.out.mkdir(parents=True, exist_ok=True)
            (chosen.out / f"standings.{suffix}").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
