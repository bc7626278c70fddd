"""A sweep: run all cells that the store does not have yet, on any engine. No torch.

Engines return records and only this process writes them to the store, each as soon as it arrives. A kill at any
moment loses at most the runs in flight.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gradpivot.errors import GradPivotError
from gradpivot.results import Record
from gradpivot.sweep.cell import Cell, Setting
from gradpivot.sweep.clock import Clock
from gradpivot.sweep.engines.job import Engine, Job, JobOutcome
from gradpivot.sweep.store.leases import LEASE_SECONDS
from gradpivot.sweep.store.store import Store

__all__ = ["State", "Sweep", "Watch"]

MAX_ATTEMPTS = 3
"""Attempts at a run whose worker keeps dying."""
MAX_FIRST_FAILURES = 10
"""Give up a series when its first runs all fail, and the sweep when the first runs of all series do."""
_POLL_SECONDS = 0.2


@dataclass
class State:
    """Progress of a sweep."""

    total: int
    """Number of runs, including originals and references."""
    done: int = 0
    """Finished runs, by any sweep."""
    before: int = 0
    """Runs finished before this sweep started."""
    running: int = 0
    """Jobs on our workers."""
    elsewhere: int = 0
    """Runs claimed by other sweeps on the same store."""
    diverged: int = 0
    """Finished runs that diverged."""
    failed: int = 0
    """Runs that failed."""
    seconds: float = 0.0
    """Duration of this sweep so far."""
    seconds_left: float | None = None
    """Estimated remaining time, or None."""
    shares: list[float] = field(default_factory=list)
    """Progress of the running jobs, where known."""
    busy: float | None = None
    """Fraction of the workers' time spent on jobs."""
    useful: float | None = None
    """Fraction of the jobs' time spent on unlearning and evaluation."""
    damaged: list[str] = field(default_factory=list)
    """Names of damaged files, whose runs are repeated."""

    @property
    def is_whole(self) -> bool:
        """Whether all runs are done."""
        return self.done == self.total


Watch = Callable[[State], None]


class _Original(NamedTuple):
    """An original or judge model to train; ``target`` is the world of a shadow model."""

    setting: Setting
    seed: int
    target: Mapping[str, Any] | None = None


class Sweep:
    """Runs the missing ones of some cells.

    Args:
        cells: The runs to do, in this order; :func:`gradpivot.sweep.cells_of` lists those of a recipe.
        store: Holds finished runs.
        engine: Runs the jobs.
        judge: Setting of the classifier that judges a generator's samples; None for other models.
    """

    def __init__(self, cells: Iterable[Cell], store: Store, engine: Engine, judge: Setting | None = None) -> None:
        self._store, self._engine, self._judge = store, engine, judge
        self._cells = {cell.key: cell for cell in cells}
        finished = store.done(list(self._cells))
        store.remove_checkpoints(finished)
        self._missing: dict[str, Cell] = {k: c for k, c in self._cells.items() if k not in finished}
        self._clock = Clock(engine)
        self.state = State(
            total=len(self._cells), done=len(finished), before=len(finished), diverged=sum(finished.values())
        )
        self._originals = self._missing_originals()
        self.state.damaged = [path.name for path in store.damaged]
        self._in_flight: dict[str, Job] = {}
        self._attempts: Counter[str] = Counter()
        self._successes: Counter[tuple[str, str]] = Counter()
        self._failures: Counter[tuple[str, str]] = Counter()
        self._last_check = self._last_notified = 0.0

    @property
    def keys(self) -> Collection[str]:
        """Keys of all runs, finished or not."""
        return self._cells.keys()

    def run(self, watch: Watch | None = None) -> State:
        """Run until everything is finished or failed.

        Raises:
            GradPivotError: If an original cannot be trained, or the first runs all fail.
            OSError: If a result cannot be written; earlier results are kept.
        """
        beat = time.monotonic()
        while self._missing:
            self._fill()
            # Successes first: a failure may end the sweep.
            for outcome in sorted(self._engine.wait(_POLL_SECONDS), key=lambda outcome: outcome.value is None):
                self._take(outcome)
            if time.monotonic() - beat > LEASE_SECONDS / 4:
                self._store.heartbeat()
                beat = time.monotonic()
            self._clock.tick()
            if not self._in_flight:
                self._check_elsewhere()
            self._notify(watch)
        self._notify(watch)
        return self.state

    def _missing_originals(self) -> dict[str, _Original]:
        """Originals and judges that missing runs need and the store lacks."""
        wanted = {
            cell.original_key: _Original(cell.setting, cell.seed, None if cell.world is None else cell.target)
            for cell in self._missing.values()
        }
        if self._judge is not None and self._missing:
            wanted[self._judge.original_key(0)] = _Original(self._judge, 0)
        return {key: what for key, what in wanted.items() if not self._store.has_original(key)}

    def _fill(self) -> None:
        """Claim and submit as many jobs as the engine takes, except those that another sweep has finished."""
        while (free := self._engine.slots() - len(self._in_flight)) > 0:
            claimed = self._store.claim(self._claimable(), free)
            for key in claimed:
                if self._found(key):
                    self._store.release(key)
                else:
                    self._in_flight[key] = job = self._job(key)
                    self._engine.submit(job)
            if len(claimed) < free:
                return

    def _claimable(self) -> Iterator[str]:
        """Originals first, then every run whose original and judge exist; a world's shadow just before its runs."""
        yield from (key for key, one in self._originals.items() if one.target is None and key not in self._in_flight)
        if self._judge is not None and self._judge.original_key(0) in self._originals:
            return
        offered = set(self._in_flight)
        for key, cell in self._missing.items():
            shadow = self._originals.get(cell.original_key)
            if shadow is not None and shadow.target is None:
                continue
            # Not all shadows first: so the first world already tells how long each kind of job takes.
            wanted = key if shadow is None else cell.original_key
            if wanted not in offered:
                offered.add(wanted)
                yield wanted

    def _job(self, key: str) -> Job:
        cell = self._missing.get(key)
        original = key if cell is None else cell.original_key
        setting, seed, target = self._originals[key] if cell is None else _Original(cell.setting, cell.seed)
        judge = setting.judge_key if cell is not None else None
        return Job(
            key=key,
            setting=setting,
            seed=seed,
            cell=cell,
            target=target,
            original=self._store.original_path(original).absolute(),
            judge=None if judge is None else self._store.original_path(judge).absolute(),
            checkpoint=self._store.checkpoint_path(key).absolute(),
            store=(self._store.folder.absolute(), self._store.id),
        )

    def _take(self, outcome: JobOutcome) -> None:
        """Store a result, retry a lost job, or record a failure."""
        job = self._in_flight.pop(outcome.job.key)
        self._clock.busy_seconds += outcome.seconds
        if outcome.lost is not None:
            self._lost(job, outcome.lost, outcome.blameless)
        elif outcome.fatal:
            raise GradPivotError(f"a worker cannot run this sweep: {outcome.error}")
        elif outcome.error is not None:
            self._fail(job, outcome.error)
        elif isinstance(outcome.value, bytes):
            self._store.put_original(job.key, outcome.value, outcome.seconds)
            self._clock.count_training(outcome.seconds)
            job.checkpoint.unlink(missing_ok=True)
            self._originals.pop(job.key, None)
        elif isinstance(outcome.value, Record):
            self._store.put(outcome.value)
            job.checkpoint.unlink(missing_ok=True)
            self._clock.count(outcome.value, outcome.seconds)
            self._successes[_series(outcome.job.cell)] += outcome.value.role == "run"
            self._note_done(job.key, outcome.value.point.diverged is not None)

    def _lost(self, job: Job, why: str, blameless: bool) -> None:
        self._attempts[job.key] += not blameless
        if self._attempts[job.key] >= MAX_ATTEMPTS:
            self._fail(job, f"{why}, {MAX_ATTEMPTS} times; the run may need more memory")
        else:
            self._store.release(job.key)

    def _fail(self, job: Job, why: str) -> None:
        if job.cell is None:
            self._store.release(job.key)
            raise GradPivotError(f"cannot train the {job.title}: {why}")
        self._store.fail(job.key, job.title, why)
        self._missing.pop(job.key)
        self.state.failed += 1
        self._failures[series := _series(job.cell)] += 1
        if self._successes.total() == 0 and self.state.failed >= MAX_FIRST_FAILURES:
            raise GradPivotError(f"the first {self.state.failed} runs all failed; the last error is: {why}")
        if not self._successes[series] and self._failures[series] >= MAX_FIRST_FAILURES:
            self._give_up(series, why)

    def _give_up(self, series: tuple[str, str], why: str) -> None:
        """Skip the rest of a series whose first runs all failed; the other series continue."""
        rest = [k for k, c in self._missing.items() if _series(c) == series and k not in self._in_flight]
        for key in rest:
            self._store.fail(key, self._job(key).title, f"skipped, the first {MAX_FIRST_FAILURES} failed: {why}")
            self._missing.pop(key)
        self.state.failed += len(rest)

    def _found(self, key: str) -> bool:
        """Whether another sweep has finished a run or original; counts it if so."""
        if key in self._originals:
            done = {key: False} if self._store.has_original(key) else {}
        else:
            done = self._store.done([key])
        for diverged in done.values():
            self._note_done(key, diverged)
        return bool(done)

    def _note_done(self, key: str, diverged: bool = False) -> None:
        if self._originals.pop(key, None) is None:
            self._missing.pop(key)
            self.state.done += 1
            self.state.diverged += diverged

    def _check_elsewhere(self) -> None:
        """Another sweep has claimed everything left: count what it has finished."""
        if not self._missing or time.monotonic() - self._last_check < 1:
            return
        self._last_check = time.monotonic()
        for key, diverged in self._store.done(list(self._missing)).items():
            self._note_done(key, diverged)
        for key in list(self._originals):
            self._found(key)

    def _notify(self, watch: Watch | None) -> None:
        if self._missing and time.monotonic() - self._last_notified < _POLL_SECONDS:
            return
        self._last_notified = time.monotonic()
        state = self.state
        state.running = min(len(self._in_flight), self._engine.workers())
        state.elsewhere = self._store.claimed_elsewhere()
        state.seconds = self._clock.seconds
        state.shares = sorted((pace.share for pace in self._engine.under_way().values()), reverse=True)
        state.seconds_left = self._clock.left(self._missing, self._originals)
        state.busy, state.useful = self._clock.busy, self._clock.useful
        if watch:
            watch(state)


def _series(cell: Cell | None) -> tuple[str, str]:
    return ("", "") if cell is None else (cell.protocol, cell.series)
