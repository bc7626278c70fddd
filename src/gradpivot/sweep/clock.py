"""Timing of a sweep: worker utilisation and remaining time. No torch."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from gradpivot.results import Record
from gradpivot.sweep.cell import Cell
from gradpivot.sweep.engines.job import Engine

__all__ = ["Clock"]


class _CostKind(NamedTuple):
    """Runs that take about equally long."""

    role: str
    series: str


def _kind(one: Cell | Record) -> _CostKind:
    return _CostKind(one.role, one.series)


class Clock:
    """Measures a sweep from its creation on.

    Args:
        engine: The engine whose workers it measures.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._started = self._ticked = time.monotonic()
        self._seconds: dict[_CostKind, list[float]] = defaultdict(list)
        self._trainings: list[float] = []
        self._total = self._useful = self._offered = self.busy_seconds = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the sweep started."""
        return time.monotonic() - self._started

    def tick(self) -> None:
        """Add the workers' time since the last tick; on a cluster their number changes."""
        now = time.monotonic()
        self._offered += (now - self._ticked) * self._engine.workers()
        self._ticked = now

    @property
    def busy(self) -> float | None:
        """Fraction of the workers' time spent on finished jobs."""
        return min(1.0, self.busy_seconds / self._offered) if self._offered and self.busy_seconds else None

    @property
    def useful(self) -> float | None:
        """Fraction of the jobs' time spent on unlearning and evaluation."""
        return self._useful / self._total if self._total else None

    def count(self, record: Record, seconds: float) -> None:
        """Count a finished run that took ``seconds`` in its worker."""
        timing = record.provenance["timing"]
        # An original is only evaluated. A resumed run includes the time before its interruption.
        parts = timing.get("unlearning", 0) + timing.get("evaluation", 0) or timing["total"]
        self._total += max(seconds, parts)
        self._useful += parts
        self._seconds[_kind(record)].append(max(timing["total"], parts))

    def count_training(self, seconds: float) -> None:
        """Count the training of an original or shadow model."""
        self._trainings.append(seconds)

    def left(self, missing: Mapping[str, Cell], originals: Collection[str] = ()) -> float | None:
        """Estimated seconds left: running jobs at their pace, missing ones at their series' mean, over all workers.

        Args:
            missing: Cells to run.
            originals: Keys of originals to train, at the mean of those trained so far.
        """
        paces = {key: pace for key, pace in self._engine.under_way().items() if pace.whole is not None}
        seconds = {kind: some[-200:] for kind, some in self._seconds.items()}
        for key, pace in paces.items():
            # Until a series has a finished run, use the pace of a running one.
            if key in missing and _kind(missing[key]) not in self._seconds:
                seconds.setdefault(_kind(missing[key]), []).append(pace.whole or 0.0)
        if not seconds:
            return None
        means = {kind: statistics.fmean(some) for kind, some in seconds.items()}
        # Originals are only scored and references retrained: neither predicts the time of a run.
        runs = [mean for kind, mean in means.items() if kind.role == "run"]
        counts = Counter(_kind(cell) for key, cell in missing.items() if key not in paces)
        if not runs and not counts.keys() <= means.keys():
            return None
        usual = statistics.fmean(runs or means.values())
        work = sum(means.get(kind, usual) * n for kind, n in counts.items())
        work += sum(pace.left or 0.0 for pace in paces.values())
        if self._trainings:
            work += statistics.fmean(self._trainings) * sum(key not in paces for key in originals)
        # Account for the overhead between jobs; running jobs are no overhead.
        spent = self.busy_seconds + sum(pace.seconds for pace in self._engine.under_way().values())
        share = min(1.0, spent / self._offered) if self._offered and spent else 1.0
        return work / self._engine.workers() / max(share, 0.1)
