from __future__ import annotations

import copy

import pytest
import torch

from gradpivot import CUP, DCGD, WS, ForgetSplit, PCGrad, trace, unlearn
from gradpivot.dial.dial import Dial
from gradpivot.dial.ramp import target_degree
from gradpivot.dial.settings import DialSettings
from gradpivot.loop.loop import Loop
from gradpivot.tasks.classification import Classification
from gradpivot.testing.problems import blobs, trained

STEERABLE = [CUP, WS, PCGrad, DCGD]


def split(classes: int = 0) -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), classes)


@pytest.mark.parametrize("method", STEERABLE)
@pytest.mark.parametrize("gamma", [0.3, 0.7, 1.0])
def test_any_steerable_method_ends_at_the_degree_that_gamma_asks_for(method, gamma):
    for classes in (0, 1, 2):
        result = unlearn(trained(), split(classes), method(gamma=gamma, epochs=8))
        asked = result.history["asked"][-1]
        assert asked == pytest.approx(target_degree(gamma), abs=0.05)
        # 40 samples: a sample is 2.5 points.
        assert result.scores.ua == pytest.approx(asked, abs=0.06)
        assert result.scores.ra > 0.9


@pytest.mark.parametrize("method", STEERABLE)
def test_targets_and_quick_traces_take_any_method_under_the_dial(method):
    under = method(gamma=1.0, epochs=6)
    found = unlearn(trained(), split(), under, until="UA>=60", keep="RA>=80")
    assert found.met
    assert 0.55 < found.scores.ua < 0.75
    points = trace(trained(), split(), under, quick=True, points=4).points
    assert [point.knob for point in points] == sorted(point.knob for point in points)
    assert points[-1].scores.ua > 0.9
    assert [p.knob for p in trace(trained(), split(), under, gammas=(0.0, 1.0)).points] == [0.0, 1.0]


def test_its_state_is_its_own_and_not_read_from_telemetry():
    """A dial that is given the state of another goes on like that one, whatever the history says."""

    class Watched(CUP):
        def unlearn(self, model, task, split, loop):
            dial = Dial(self, model, task, split, loop)
            batches = loop.paired_batches(model, task, split, self)
            for _, batch in zip(range(3), batches, strict=False):
                dial.step(batch)
            state = copy.deepcopy(dial.state_dict())
            other = Dial(self, trained(), task, split, loop)
            assert other.state_dict() != state
            other.load_state_dict(state)
            assert other.state_dict() == state
            seen.append(state)

    seen: list[dict] = []
    method = Watched(gamma=0.8, lr=0.05, epochs=4)
    Loop().run(method, trained(), Classification(), split())
    assert seen[0]["ramp"]["evidence"] > 0


def test_a_killed_run_continues_with_the_state_of_the_dial(tmp_path):
    class KilledError(Exception):
        pass

    def run(kill_at: int | None) -> torch.nn.Module:
        def progress(done: int, total: int) -> None:
            if done == kill_at:
                raise KilledError

        loop = Loop(checkpoint=tmp_path / "state.pt", checkpoint_seconds=0, progress=progress)
        return loop.run(CUP(gamma=0.8, epochs=4), trained(), Classification(), split(), key="k").model

    with pytest.raises(KilledError):
        run(10)
    saved = torch.load(tmp_path / "state.pt", weights_only=True)["state"]
    assert saved["attached"].keys() == {"ramp", "region"}
    # What the history says does not matter to the next step.
    assert "evidence" not in saved["history"][-1]
    continued = run(None)
    (tmp_path / "state.pt").unlink()
    for mine, theirs in zip(continued.parameters(), run(None).parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_the_settings_are_the_constants_of_every_part():
    """Half the retain tolerance: no kept step raises L_r of its batch by more than twice that."""
    strict = DialSettings(retain_tolerance=0.005, repair_above=0.01)

    class Strict(CUP):
        def unlearn(self, model, task, split, loop):
            dial = Dial(self, model, task, split, loop, strict)
            for batch in loop.paired_batches(model, task, split, self):
                dial.step(batch)
            dial.finish()

    outcome = Loop().run(Strict(gamma=1.0, lr=1.0, epochs=6), trained(), Classification(), split())
    rows = zip(outcome.history["retain_change"], outcome.history["taken_back"], strict=True)
    checked = [change for change, back in rows if change is not None and not back]
    assert max(checked) <= 2 * strict.retain_tolerance + 1e-9


@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_a_run_ends_once_the_target_was_held_and_nothing_is_broken(gamma):
    """Separable blobs: nothing to repair after the ramp."""
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    method = CUP(gamma=gamma, epochs=40, batch_size=16, batchnorm="frozen")
    result = unlearn(trained(), split, method)
    settings, steps = DialSettings(), len(result.history["step"])
    assert 40 * 2 * (settings.ramp + settings.hold) <= steps < 40 * 3
    assert result.history["reached"][-1] == pytest.approx(result.history["asked"][-1], abs=0.03)
    assert result.scores.ra >= 0.95


def test_a_run_under_new_statistics_goes_to_its_end():
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    method = CUP(gamma=1.0, epochs=10, batch_size=16, batchnorm="recalibrate")
    full = unlearn(trained(), split, method)
    per_epoch = -(-len(split.forget_indices) // 16)
    assert len(full.history["step"]) == 10 * per_epoch
