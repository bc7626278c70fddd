"""The contract of unlearning methods, as a test class to inherit from.

Example:
    class TestMine(MethodContract):
        method = Mine(lr=0.05, epochs=10)
"""

from __future__ import annotations

import copy
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from gradpivot.data import ForgetSplit
from gradpivot.errors import GradPivotError
from gradpivot.loop import Loop
from gradpivot.methods import Descent, Method, make_method, method_class
from gradpivot.runs import Running, run_method
from gradpivot.tasks import Classification
from gradpivot.testing.problems import Guarded, TinyNet, blobs, trained

__all__ = ["MethodContract"]


class _Recorded(Dataset[Any]):
    """A dataset that records which samples are read."""

    def __init__(self, dataset: TensorDataset) -> None:
        self._dataset = dataset
        self.read: set[int] = set()

    def __getitem__(self, index: int) -> Any:
        self.read.add(int(index))
        features, label = self._dataset[index]
        return features, int(label)

    def __len__(self) -> int:
        return len(self._dataset)


class _Stop(Exception):  # noqa: N818 - simulates a kill
    pass


class MethodContract:
    """Subclass it, set :attr:`method` to a configuration that forgets the tiny problem, and run pytest.

    Attributes:
        method: The method under test.
        least_ua: Minimum UA on the tiny problem.
        least_ra: Minimum RA on the tiny problem.
    """

    method: ClassVar[Method]
    least_ua: ClassVar[float] = 0.9
    least_ra: ClassVar[float] = 0.9

    def split(self) -> ForgetSplit:
        """A split that forgets one of three blobs."""
        return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)

    def run(self, method: Method | None = None, **options: Any) -> Any:
        """Run a method on the tiny problem."""
        return run_method(trained(), self.split(), method or self.method, Running(factory=TinyNet, **options))

    def test_forgets_and_keeps(self) -> None:
        """Separable data: UA and RA reach their minimum."""
        scores = self.run().scores
        assert scores.ua >= self.least_ua
        assert scores.ra >= self.least_ra

    def test_same_seed_same_weights(self) -> None:
        """The same seed gives bit-identical results, including dropout; another seed gives others."""
        first, second, other = self.run(seed=1), self.run(seed=1), self.run(seed=2)
        assert _equal(first.model, second.model)
        assert first.history == second.history
        assert first.scores == second.scores
        assert self.method.one_shot or not _equal(first.model, other.model)

    def test_workers_change_nothing(self) -> None:
        """Streamed data give the same results with and without worker processes."""
        samples = [(x, int(y)) for x, y in zip(*blobs(per_class=20).tensors, strict=True)]
        split = ForgetSplit.by_class(samples, blobs(seed=1), 0, data_id="workers")
        short = replace(self.method, epochs=1) if isinstance(self.method, Descent) else self.method
        runs = [run_method(trained(), split, short, Running(factory=TinyNet, workers=n)) for n in (0, 2)]
        assert _equal(runs[0].model, runs[1].model)
        assert runs[0].scores == runs[1].scores

    def test_interrupted_and_resumed_equals_uninterrupted(self, tmp_path: Path) -> None:
        """A run killed during a step resumes from its checkpoint with the same weights and history."""
        uninterrupted = self.run()
        calls = 0

        def kill(done: int, total: int) -> None:
            nonlocal calls
            calls += 1
            if calls == total // 2 + 2:
                raise _Stop

        checkpoint = tmp_path / "checkpoint.pt"
        try:
            self.run(progress=kill, checkpoint=checkpoint, checkpoint_seconds=0)
        except _Stop:
            assert checkpoint.exists() != self.method.one_shot
        resumed = self.run(checkpoint=checkpoint, checkpoint_seconds=0)
        assert _equal(uninterrupted.model, resumed.model)
        assert uninterrupted.history == resumed.history
        assert not checkpoint.exists()

    def test_never_reads_the_test_data(self) -> None:
        """Unlearning doesn't read the test set, which raises on access."""
        test = Guarded(torch.zeros(9, 4), torch.zeros(9, dtype=torch.long))
        split = ForgetSplit.by_class(blobs(), test, 0, data_id="guarded")
        Loop(factory=TinyNet).run(self.method, trained(), Classification(), split)

    def test_reads_what_it_declares(self) -> None:
        """Reads exactly the sets given by ``needs_forget``, ``needs_retain`` and ``uses_all_retain``."""
        recorded = _Recorded(blobs(per_class=20))
        split = ForgetSplit.by_class(recorded, blobs(seed=1), 0, data_id="recorded")
        recorded.read.clear()
        short = replace(self.method, epochs=1) if isinstance(self.method, Descent) else self.method
        Loop(factory=TinyNet).run(short, trained(), Classification(), split)
        assert bool(recorded.read & set(split.forget_indices.tolist())) == self.method.needs_forget
        assert bool(recorded.read & set(split.retain_indices.tolist())) == self.method.needs_retain
        if self.method.uses_all_retain:
            assert recorded.read >= set(split.retain_indices.tolist())

    def test_labels_of_already_forgotten_records_change_nothing(self) -> None:
        """What an earlier request deleted cannot be learned again: its labels do not affect the new model."""
        inputs, labels = blobs().tensors
        earlier = np.arange(0, len(labels), 5)
        short = replace(self.method, epochs=1) if isinstance(self.method, Descent) else self.method
        models = []
        for shift in (0, 1):
            given = labels.clone()
            given[earlier] = (given[earlier] + shift) % 3
            split = ForgetSplit.by_class(
                TensorDataset(inputs, given), blobs(seed=1), 0, data_id="relabelled", already_forgotten=earlier
            )
            models.append(Loop(factory=TinyNet).run(short, trained(), Classification(), split).model)
        assert _equal(*models)

    def test_original_and_caller_are_left_alone(self) -> None:
        """Doesn't change the original's weights, buffers, modes and gradients, or the caller's random state."""
        model = trained()
        model.layers[3].train()  # type: ignore[index,union-attr]
        before, modes = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
        states = torch.get_rng_state(), _numpy_state(), random.getstate()
        result = run_method(model, self.split(), self.method, Running(factory=TinyNet))
        assert torch.equal(states[0], torch.get_rng_state())
        assert np.array_equal(states[1], _numpy_state())
        assert states[2] == random.getstate()
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert [m.training for m in model.modules()] == modes
        assert [m.training for m in result.model.modules()] == modes
        for old, new in zip(model.parameters(), result.model.parameters(), strict=True):
            assert old.requires_grad == new.requires_grad
            assert old.device == new.device
            assert old.grad is None
            assert new.grad is None

    def test_the_architecture_stays(self) -> None:
        """Modules, parameter names, shapes and the number of outputs don't change."""
        model, result = trained(), self.run().model
        assert _shapes(result) == _shapes(model)
        assert result(blobs().tensors[0]).shape == (120, 3)
        assert [type(m) for m in result.modules()] == [type(m) for m in model.modules()]

    def test_a_head_that_cannot_be_found_is_explained(self) -> None:
        """If the output layer is not linear, a method that changes it names the setting to use."""
        if not self.method.changes_head:
            return
        with pytest.raises(GradPivotError, match="set head"):
            run_method(nn.Sequential(trained(), nn.Hardtanh()), self.split(), self.method)

    def test_frozen_weights_stay(self) -> None:
        """A parameter with ``requires_grad=False`` doesn't change."""
        if self.method.starts_over:
            return
        model = trained()
        frozen = next(model.parameters()).requires_grad_(False)
        result = run_method(model, self.split(), self.method, Running(factory=TinyNet))
        assert torch.equal(frozen, next(result.model.parameters()))
        assert not next(result.model.parameters()).requires_grad

    def test_configuration_round_trips(self) -> None:
        """Settings survive JSON and the command line."""
        from gradpivot.cli.parser import parse

        as_json = json.loads(json.dumps(self.method.to_dict()))
        assert make_method(as_json) == self.method
        words = ["unlearn", self.method.name]
        for name, value in self.method.to_dict().items():
            option = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{option}" if value else f"--no-{option}")
            elif name != "method":
                words += [f"--{option}", str(value)]
        assert parse(words).method == self.method

    def test_is_registered(self) -> None:
        """The method is found by its name."""
        assert method_class(self.method.name) is type(self.method)

    def test_protocols(self) -> None:
        """Both protocols and every point of the paper's space can be built."""
        kind = type(self.method)
        assert kind.protocol("clean") == kind()
        assert isinstance(kind.protocol("paper"), kind)
        assert all(isinstance(method, kind) for method in kind.space())
        assert len({method.label for method in kind.space()}) == max(
            1, math.prod(len(v) for v in kind.paper_space.values())
        )

    def test_one_sample(self) -> None:
        """A forget set of one sample works; train-mode BatchNorm doesn't support it and must say so."""
        split = ForgetSplit.by_index(blobs(), blobs(seed=1), [0])
        policy = self.method.policy(split.kind) if isinstance(self.method, Descent) else "frozen"
        # Under the dial forget samples are normalised by the statistics of retain batches.
        alone = policy == "train" or (policy == "recalibrate" and not self.method.is_dialled)
        if alone and self.method.needs_forget:
            with pytest.raises(GradPivotError, match="use batchnorm='frozen'"):
                run_method(trained(), split, self.method, Running(factory=TinyNet))
            return
        result = run_method(trained(), split, self.method, Running(factory=TinyNet))
        assert result.point().classification.n_forget == 1

    def test_nothing_to_forget_is_an_error(self) -> None:
        """An empty forget set is rejected before the run."""
        with pytest.raises(GradPivotError, match="empty"):
            ForgetSplit.by_index(blobs(), blobs(seed=1), [])

    def test_non_finite_loss_ends_as_diverged(self) -> None:
        """With NaN in the data, the run reports step and reason, with finite weights and zero scores."""
        features, labels = blobs().tensors
        poisoned = features.clone()
        poisoned[:] = math.nan
        split = ForgetSplit.by_class(TensorDataset(poisoned, labels), blobs(seed=1), 0)
        result = run_method(trained(), split, self.method, Running(factory=TinyNet))
        assert result.diverged is not None
        assert result.diverged["step"] == 0
        assert "nan" in result.diverged["reason"]
        assert result.scores is not None
        assert result.scores.vector() == (0, 0, 0, 0)
        assert all(bool(value.isfinite().all()) for value in result.model.state_dict().values())
        assert _shapes(result.model) == _shapes(trained())


def _equal(first: nn.Module, second: nn.Module) -> bool:
    left, right = first.state_dict(), second.state_dict()
    return all(torch.equal(value, right[name]) for name, value in left.items())


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in model.state_dict().items()}


def _numpy_state() -> np.ndarray:
    """State of NumPy's legacy global generator, which users' datasets may draw from."""
    state: np.ndarray = np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002
    return state
