from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import BS, Classification, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.loop.loop import Loop
from gradpivot.models.cnn import SmallCNN
from gradpivot.models.pixels import OnPixels, Pixels
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import blobs, trained


class TestBS(MethodContract):
    method = BS(epsilon=3.0, low=None, high=None, lr=0.02, epochs=15)
    least_ra = 0.6  # nothing holds the rest in place


class TestBSAsPrinted(MethodContract):
    method = BS.protocol("paper", epsilon=3.0, low=-5.0, high=9.0, lr=0.01, epochs=15, batch_size=8)
    least_ra = 0.6


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def labels_of(method: BS, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> list[int]:
    found = method.labels(model, Classification(), [(np.arange(len(inputs)), (inputs, targets))])
    return [found[i] for i in range(len(inputs))]


@given(seed=st.integers(0, 2**31), epsilon=st.floats(0.01, 10), clamps=st.booleans())
@settings(max_examples=50, deadline=None)
def test_labels_against_the_gradient_by_hand(seed, epsilon, clamps):
    """A softmax regression has ∇ₓCE = Wᵀ(p − e_y), here in NumPy."""
    random = np.random.default_rng(seed)
    weight, bias = random.normal(size=(4, 6)), random.normal(size=4)
    x, y = random.uniform(size=(9, 6)), random.integers(4, size=9)
    model = nn.Linear(6, 4).double()
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(weight))
        model.bias.copy_(torch.from_numpy(bias))
    z = x @ weight.T + bias
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(9), y] -= 1
    moved = x + epsilon * np.sign(p @ weight)
    moved = moved.clip(0, 1) if clamps else moved
    expected = (moved @ weight.T + bias).argmax(1)
    method = BS(epsilon=epsilon) if clamps else BS(epsilon=epsilon, low=None, high=None)
    assert labels_of(method, model, torch.from_numpy(x), torch.from_numpy(y)) == expected.tolist()


def test_a_confident_model_has_neighbours_too():
    """Where p_y rounds to 1 in float32, CE in float32 has no pull of the true class: only −W_y is left out."""
    model = nn.Linear(2, 3)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[30.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
        model.bias.zero_()
    x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([0])
    assert float(model(x).detach().softmax(1)[0, 0]) == 1.0
    assert BS(epsilon=0.25).neighbours(model, Classification(), x, y)[0, 0] == 0.75


def test_without_one_of_the_limits_the_other_holds():
    model, x, y = nn.Linear(3, 2), torch.full((1, 3), 0.5), torch.tensor([0])
    for low, high in ((0.25, None), (None, 0.75), (0.25, 0.75), (None, None)):
        moved = BS(epsilon=5.0, low=low, high=high).neighbours(model, Classification(), x, y)
        assert float(moved.min()) >= (low if low is not None else -5)
        assert float(moved.max()) <= (high if high is not None else 6)
        assert bool(((moved - 0.5).abs() > 0.05).all())


def watched(monkeypatch, run):
    """The labels of D_f that runs used, by intercepting where they are made."""
    made, whole = [], BS.labels
    monkeypatch.setattr(BS, "labels", lambda *a: made.append(whole(*a)) or made[-1])
    run()
    return made


def test_labels_are_the_originals_on_resuming_too(monkeypatch, tmp_path):
    method = BS(epsilon=3.0, low=None, high=None, lr=0.05, epochs=3)
    path = tmp_path / "checkpoint.pt"

    class Stop(Exception):  # noqa: N818 - stands for a kill
        pass

    def kill(done, total):
        if done == total - 1:
            raise Stop

    def run():
        with pytest.raises(Stop):
            Loop(checkpoint=path, checkpoint_seconds=0, progress=kill).run(
                method, trained(), Classification(), split(), key="x"
            )
        Loop(checkpoint=path, checkpoint_seconds=0).run(method, trained(), Classification(), split(), key="x")

    first, resumed = watched(monkeypatch, run)
    inputs, targets = blobs().tensors
    expected = labels_of(method, trained(), inputs[targets == 0], targets[targets == 0])
    assert list(first.values()) == list(resumed.values()) == expected
    # The weights at the interruption would have given others: the test can fail.
    part_way = trained()
    part_way.load_state_dict(torch.load(path, weights_only=True)["state"]["descent"]["model"])
    assert labels_of(method, part_way.eval(), inputs[targets == 0], targets[targets == 0]) != expected


@pytest.mark.numeric
def test_each_sample_is_trained_to_its_own_label(monkeypatch):
    """Forget samples of all classes, shuffled into batches: the trained model gives each one the label it was given."""
    mixed = ForgetSplit.by_index(blobs(), blobs(seed=1), range(30))
    method = BS(epsilon=4.0, low=None, high=None, lr=0.05, epochs=40)
    results = []
    (labels,) = watched(monkeypatch, lambda: results.append(unlearn(trained(), mixed, method)))
    with torch.no_grad():
        said = results[0].model(blobs().tensors[0][:30]).argmax(1).tolist()
    assert sorted(labels) == list(range(30))
    assert len(set(labels.values())) > 1
    assert sum(said[i] == label for i, label in labels.items()) >= 28


@pytest.mark.numeric
def test_unchanged_labels_are_recorded():
    near = BS(epsilon=1e-6, low=None, high=None, epochs=1)
    far = BS(epsilon=4.0, low=None, high=None, epochs=1)
    assert set(unlearn(trained(), split(), near).history["unchanged_labels"]) == {1.0}
    assert max(unlearn(trained(), split(), far).history["unchanged_labels"]) < 0.5


def test_epsilon_of_the_whole_range_saturates():
    """On data in [0, 1] every ε ≥ 1 has the same neighbours: two of the printed four are one."""
    x, y = torch.rand(20, 4), torch.arange(20) % 3
    model = nn.Linear(4, 3)
    first, second = (BS(epsilon=e).neighbours(model, Classification(), x, y) for e in (1.0, 10.0))
    assert torch.equal(first, second)


def test_inputs_outside_the_range_are_refused():
    with pytest.raises(GradPivotError, match=r"inputs are in \[-\d.*outside \[0.0, 1.0\]; set low and high"):
        unlearn(trained(), split(), BS())


def test_integer_inputs_are_refused():
    embed = nn.Sequential(nn.Embedding(9, 3), nn.Flatten())
    words = TensorDataset(torch.arange(9)[:, None], torch.arange(9) % 3)
    with pytest.raises(GradPivotError, match=r"they are torch\.int64"):
        unlearn(embed, ForgetSplit.by_class(words, words, 0), BS())


def test_another_task_is_refused():
    class Other:
        pass

    with pytest.raises(GradPivotError, match="BS only supports classification, but the task is a Other"):
        Loop().run(BS(), trained(), Other(), split())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"epsilon": 0}, "epsilon is 0"), ({"low": float("nan")}, "low is nan"), ({"low": 1.0}, "low must be below high")],
)
def test_settings_are_checked(wrong, message):
    with pytest.raises(GradPivotError, match=message):
        BS(**wrong)


def test_paper_space_is_twelve_settings():
    assert len(BS.space()) == 12
    assert (BS.space()[0].max_norm, BS.space()[0].batch_size) == (None, 256)


def test_bytes_are_moved_as_the_model_sees_them():
    """A model on Pixels takes bytes and [0, 1] alike; one that takes bytes as they are would get other inputs."""
    images = torch.randint(0, 256, (8, 1, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    labels, task = torch.arange(8) % 3, Classification()
    inner = SmallCNN(classes=3).eval()
    batches = [(np.arange(8), (images, labels))]
    found = BS(epsilon=0.1).labels(OnPixels(Pixels(), inner).eval(), task, batches)
    assert found == BS(epsilon=0.1).labels(inner, task, [(np.arange(8), (images.float() / 255, labels))])

    class Raw(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x.float())

    with pytest.raises(GradPivotError, match="does not scale uint8 images by 1/255"):
        BS(epsilon=0.1).labels(Raw().eval(), task, batches)
