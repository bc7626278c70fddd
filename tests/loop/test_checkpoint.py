from __future__ import annotations

import pytest
import torch

from gradpivot.errors import GradPivotError
from gradpivot.loop import checkpoint
from gradpivot.loop.checkpoint import Checkpoint


@pytest.mark.parametrize(("takes", "times"), [(0.01, 10), (4.0, 2)])
def test_a_state_that_is_slow_to_write_is_written_less_often(tmp_path, monkeypatch, takes, times):
    """A step a second for 400 seconds: every 40 if writing is quick, every 200 if it takes four."""
    now, written = 0.0, []
    monkeypatch.setattr(checkpoint.time, "perf_counter", lambda: now)
    keeper = Checkpoint(tmp_path / "c.pt", "key", 40.0)

    def state() -> dict[str, float]:
        nonlocal now
        written.append(now)
        now += takes
        return {"now": now}

    for _ in range(400):
        now += 1.0
        keeper.save_if_due(state)
    assert abs(len(written) - times) <= 1
    saved = Checkpoint(tmp_path / "c.pt", "key", 40.0).load()
    assert saved is not None
    assert saved["now"] == pytest.approx(written[-1] + takes)


def test_zero_is_after_every_step_however_slow(tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr(checkpoint.time, "perf_counter", lambda: now)
    keeper, written = Checkpoint(tmp_path / "c.pt", "key", 0), 0

    def state() -> dict[str, float]:
        nonlocal now, written
        now, written = now + 5.0, written + 1
        return {}

    for _ in range(3):
        keeper.save_if_due(state)
    assert written == 3


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
