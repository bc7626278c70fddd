from __future__ import annotations

import pytest
import torch

from gradpivot.errors import GradPivotError
from gradpivot.loop import checkpoint
from gradpivot.loop.checkpoint import Checkpoint


class Machine:
    """A clock, and a disk on which a write takes ``takes`` seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, takes: float) -> None:
        self.now, self.takes, self.written = 0.0, takes, []
        self._save = torch.save
        monkeypatch.setattr(checkpoint.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(checkpoint.torch, "save", self.save)

    def save(self, state, file) -> None:
        self.written.append(self.now)
        self.now += self.takes
        self._save(state, file)

    def steps(self, keeper: Checkpoint, count: int, seconds: float = 1.0, done: int = 0) -> None:
        for step in range(done + 1, done + count + 1):
            self.now += seconds
            keeper.save_if_due(lambda step=step: {"step": step})


@pytest.mark.parametrize(("takes", "gap"), [(0.01, 40), (4.0, 200)])
def test_a_state_that_is_slow_to_write_is_written_less_often(tmp_path, monkeypatch, takes, gap):
    """A step a second: in the long run every 40 seconds if writing is quick, every 200 if it takes four."""
    machine = Machine(monkeypatch, takes)
    machine.steps(Checkpoint(tmp_path / "c.pt", "key", 40.0), 2000)
    gaps = [round(after - before, 6) for before, after in zip(machine.written, machine.written[1:], strict=False)]
    assert machine.written[0] == 1
    assert gaps == sorted(gaps)
    assert gap <= gaps[-1] <= gap + 2 + takes
    assert takes * len(machine.written) <= 0.02 * machine.now + takes
    assert Checkpoint(tmp_path / "c.pt", "key", 40.0).load() is not None


def test_a_large_state_is_first_written_late(tmp_path, monkeypatch):
    """A gigabyte is expected to take five seconds; the interval that was asked for bounds the wait all the same."""
    for every, first in ((1000.0, 251), (10.0, 10)):
        machine = Machine(monkeypatch, 0.0)
        keeper, weights = Checkpoint(tmp_path / "c.pt", "key", every), torch.zeros(1).expand(250_000_000)
        monkeypatch.setattr(machine, "_save", lambda *_: None)
        while not machine.written:
            machine.now += 1
            keeper.save_if_due(lambda weights=weights: {"model": {"a": [weights]}})
        assert machine.written == [first]
        monkeypatch.undo()


def test_a_run_that_is_killed_every_second_advances(tmp_path, monkeypatch):
    """Nothing was written in the first ten seconds, so it never did."""
    machine, done = Machine(monkeypatch, 0.001), 0
    for _ in range(10):
        keeper = Checkpoint(tmp_path / "c.pt", "key", 10.0)
        before = done
        if (saved := keeper.load()) is not None:
            done = saved["step"]
            assert done > before
        machine.steps(keeper, 10, seconds=0.1, done=done)
    assert done > 30


def test_a_run_of_a_moment_writes_nothing(tmp_path, monkeypatch):
    machine = Machine(monkeypatch, 0.001)
    machine.steps(Checkpoint(tmp_path / "c.pt", "key", 10.0), 10, seconds=0.01)
    assert machine.written == []


def test_zero_is_after_every_step_however_slow(tmp_path, monkeypatch):
    machine = Machine(monkeypatch, 5.0)
    machine.steps(Checkpoint(tmp_path / "c.pt", "key", 0), 3)
    assert len(machine.written) == 3


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_a_time_that_is_none_is_refused(tmp_path, seconds):
    with pytest.raises(GradPivotError, match=r"interval is (-1|nan) s; it must be ≥ 0"):
        Checkpoint(tmp_path / "c.pt", "key", seconds)


def test_what_is_no_state_of_a_run_is_not_called_damaged(tmp_path):
    """Deleting it would be a loss: it may be the trained model."""
    mine = tmp_path / "my_model.pt"
    torch.save({"weight": torch.zeros(3)}, mine)
    with pytest.raises(GradPivotError, match="is not the checkpoint of a run; give another file") as refused:
        Checkpoint(mine, "key", 1).load()
    assert "delete" not in str(refused.value)
    with pytest.raises(GradPivotError, match="is a directory; give a file name"):
        Checkpoint(tmp_path, "key", 1).load()
    mine.write_bytes(b"half a file")
    with pytest.raises(GradPivotError, match=r"damaged or of another kind"):
        Checkpoint(mine, "key", 1).load()
