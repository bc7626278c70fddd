"""Compare two gloo processes with one on the same global batches; tests/replicas.py holds what they run."""

from __future__ import annotations

import copy
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

import replicas
from gradpivot import CUP, score, unlearn
from gradpivot.data.order import cut, smallest_batch
from gradpivot.errors import GradPivotError
from gradpivot.methods.registry import list_methods, method_class
from gradpivot.runtime import parallel
from gradpivot.runtime.parallel import Part, Replicas
from gradpivot.runtime.randomness import draw_labels, drawing_for

TOLERANCE = 1e-9
"""On float64 weights after an epoch; the documented tolerance is 1e-5."""


@pytest.fixture(scope="module")
def found(two_processes):
    """The outcome of each of two processes."""
    return two_processes[0]


def assert_weights(two: dict[str, torch.Tensor], one: dict[str, torch.Tensor]) -> None:
    assert two.keys() == one.keys()
    for name in one:
        torch.testing.assert_close(two[name], one[name], atol=TOLERANCE, rtol=0, msg=lambda m, n=name: f"{n}: {m}")


def assert_same_run(two: dict, one: dict) -> None:
    assert_weights(two["weights"], one["weights"])
    assert two["history"].keys() == one["history"].keys()
    for name, column in one["history"].items():
        for mine, whole in zip(two["history"][name], column, strict=True):
            assert mine == (None if whole is None else pytest.approx(whole, rel=1e-6, abs=1e-9)), name
    assert two["scores"] == pytest.approx(one["scores"], abs=1e-9)
    assert two["diverged"] == one["diverged"]


@given(st.integers(0, 500), st.integers(1, 9))
def test_parts_are_a_partition_and_shares_sum_to_one(total, size):
    parts = [Replicas(rank, size).part(total) for rank in range(size)]
    assert [i for p in parts for i in range(p.start, p.stop)] == list(range(total))
    sizes = [p.stop - p.start for p in parts]
    assert max(sizes) - min(sizes) <= 1
    if total:
        assert sum(p.share for p in parts) == pytest.approx(1)


@given(st.integers(1, 60), st.integers(1, 20))
def test_the_smallest_batch_is_known_without_cutting(samples, size):
    assert smallest_batch(samples, size) == min(map(len, cut(np.arange(samples), size)))


def test_a_process_without_samples_gets_the_first_with_share_zero():
    indices = np.array([5])
    assert [Replicas(rank, 3).take(indices).tolist() for rank in range(3)] == [[5], [5], [5]]
    assert [Replicas(rank, 3).part(1).share for rank in range(3)] == [0, 0, 1]
    assert Part(0, 3, 4).share == 0.75


def test_several_processes_draw_the_labels_of_one():
    torch.manual_seed(3)
    alone = [draw_labels(10, 7, torch.device("cpu")) for _ in range(2)]
    drawn = []
    for rank in range(3):
        start, stop, total = Replicas(rank, 3).part(7)
        with drawing_for(start, stop, total, 3):
            drawn.append([draw_labels(10, stop - start, torch.device("cpu")) for _ in range(2)])
            with pytest.raises(GradPivotError, match="run it in one process"):
                draw_labels(10, 99, torch.device("cpu"))
    for number, expected in enumerate(alone):
        assert torch.equal(torch.cat([labels[number] for labels in drawn]), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(replicas.variants()))
def test_two_processes_do_what_one_does(found, name):
    two, other = (f["methods"][name] for f in found)
    assert_same_run(two, replicas.outcome(replicas.variants()[name]))
    assert two["processes"] == 2
    # Exactly: every process computes the step from the same numbers.
    for weight in two["weights"]:
        assert torch.equal(two["weights"][weight], other["weights"][weight])
    assert two["history"] == other["history"]
    assert two["scores"] == other["scores"]


def test_every_general_method_is_compared():
    general = {name for name in list_methods() if method_class(name).only_for is None}
    assert general <= set(replicas.variants())


def test_augmentation_does_not_depend_on_the_process(found):
    method = CUP(epochs=2, lr=replicas.LR, batch_size=4, augment="crop_flip")
    assert_same_run(found[0]["augmented"], replicas.outcome(method, replicas.convnet(), replicas.images()))


def test_records_end_as_uncertain_as_with_one_process(found):
    alone = replicas.outcome(replicas.RECORDS, replicas.memorising(), replicas.some_records())
    assert alone["history"]["reached"][-1] > alone["history"]["start"][-1]
    assert_same_run(found[0]["records"], alone)


def test_frozen_batchnorm_is_that_of_one_process(found):
    one = replicas.outcome(CUP(epochs=1, lr=replicas.LR, batch_size=7), replicas.mlp(batchnorm=True))
    assert_same_run(found[0]["frozen_batchnorm"], one)


def test_running_statistics_are_averaged(found):
    """With equal parts the mean of the parts' means is the batch mean; the variances are within-part variances."""
    method = CUP(epochs=1, lr=replicas.LR, batch_size=64, batchnorm="train")
    one = replicas.outcome(method, replicas.mlp(batchnorm=True), replicas.split(16))["weights"]
    two = found[0]["train_batchnorm"]["one step"]["weights"]
    before = replicas.mlp(batchnorm=True).state_dict()
    torch.testing.assert_close(two["1.running_mean"], one["1.running_mean"], atol=1e-12, rtol=0)
    assert not torch.equal(two["1.running_mean"], before["1.running_mean"])
    assert torch.equal(two["1.num_batches_tracked"], one["1.num_batches_tracked"])
    torch.testing.assert_close(two["1.running_var"], one["1.running_var"], rtol=0.1, atol=0)
    assert not torch.allclose(two["1.running_var"], one["1.running_var"], rtol=1e-6)


@pytest.mark.parametrize("what", ["one step", "recalibrated", "dropout too"])
def test_replicas_stay_equal_with_batchnorm_in_train_mode_and_dropout(found, what):
    first, second = (f["train_batchnorm"][what]["weights"] for f in found)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_recalibration_sees_all_the_retain_data_in_every_process(found):
    """The statistics are those of the final network over the full retain set."""
    state = found[0]["train_batchnorm"]["recalibrated"]["weights"]
    split = replicas.split()
    features = split.train.tensors[0][split.retain_indices.tolist()]
    expected = (features @ state["0.weight"].T + state["0.bias"]).mean(0)
    torch.testing.assert_close(state["1.running_mean"], expected, atol=1e-9, rtol=0)


def test_a_divergence_is_seen_by_all_at_the_same_step(found):
    method = CUP(epochs=3, lr=1e300, batch_size=7, dial="angle", momentum=0.9, objective="negative_ce")
    one = replicas.outcome(method)
    assert one["diverged"] is not None
    for f in found:
        assert f["diverged"]["diverged"] == one["diverged"]
        assert_weights(f["diverged"]["weights"], one["weights"])


def test_scores_are_those_of_one_process_to_the_last_digit(found):
    from gradpivot import Classification
    from gradpivot.evaluate.classifiers.evaluation import evaluate

    one = evaluate(replicas.mlp(), replicas.split(600), Classification()).to_dict()
    assert [f["evaluated"] for f in found] == [one, one]


def test_a_killed_run_resumes_with_the_same_or_another_number_of_processes(found, two_processes, tmp_path):
    one, two = replicas.outcome(replicas.LONG), found[0]["resumed"]
    assert_same_run(two["uninterrupted"], one)
    for rank in (0, 1):
        resumed = found[rank]["resumed"]["from two"]
        for name, weight in resumed["weights"].items():
            assert torch.equal(weight, two["uninterrupted"]["weights"][name])
        assert resumed["history"] == two["uninterrupted"]["history"]
    assert_same_run(two["from one"], one)
    shutil.copy(two_processes[1] / "by-two-copy.pt", tmp_path / "checkpoint.pt")
    assert_same_run(replicas.outcome(replicas.LONG, checkpoint=tmp_path / "checkpoint.pt"), one)


def test_the_first_process_alone_reads_and_removes_the_checkpoint(found):
    for f in found:
        assert f["resumed"]["damaged"].startswith("GradPivotError: the checkpoint")
        assert "damaged-0.pt is damaged" in f["resumed"]["damaged"]
        assert f["resumed"]["left"] == ["by-two-copy.pt"]


def test_one_vector_holds_all_dtypes_and_layouts(found):
    for f in found:
        reduced = f["reduced"]
        for name, gradient in reduced["gradients"].items():
            if name == "nobody":
                assert gradient is None
                continue
            times = 1 if name == "first only" else 3
            expected = times * torch.arange(gradient.numel()).reshape(gradient.shape)
            assert torch.equal(gradient.double(), expected.double()), name
        assert reduced["gradients"]["bfloat16"].dtype == torch.bfloat16
        assert reduced["gradients"]["float32"].dtype == torch.float32
        assert reduced["strides"]["channels_last"] == (48, 1, 12, 3)
        assert reduced["strides"]["gaps"] == (3, 1)
        assert reduced["loss"] == 1.5
        assert reduced["not asked"] == ([None] * 6, None)
        assert reduced["buffer"].tolist() == [0.5] * 3
        assert reduced["mean"] == {"x": 0.75}
    assert [f["reduced"]["parts"] for f in found] == [
        [(0, 0, 0), (0, 0, 1), (0, 1, 2), (0, 3, 7)],
        [(0, 0, 0), (0, 1, 1), (1, 2, 2), (3, 7, 7)],
    ]


def test_a_step_is_one_exchange_of_two_gradients(found):
    model = replicas.mlp()
    weights, tensors = sum(p.numel() for p in model.parameters()), len(list(model.parameters()))
    # Beside each gradient: its loss, and whether each of its tensors is there at all.
    assert found[0]["exchanged"] == [2 * (weights + tensors + 1)] * 2


def test_losses_draw_per_process_and_methods_draw_alike(found):
    first, second = (f["draws"] for f in found)
    assert first["inside"] != second["inside"]
    assert first["outside"] == second["outside"]
    torch.manual_seed(7)
    assert first["after"] == second["after"] == float(torch.rand(()))


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("other seeds", "different runs"),
        ("other methods", "different runs"),
        ("drift", "differ between the 2 processes"),
        ("one sample each", "use batchnorm='frozen'"),
        ("sharded", "before fully_shard"),
        ("wrapped", "pass model.module"),
        ("not a tensor", "the first one refuses"),
    ],
)
def test_all_processes_raise_the_same_error(found, what, words):
    for f in found:
        assert words in f["refused"][what]
        assert "\n" not in f["refused"][what]


def test_processes_of_a_group_can_work_alone(found):
    for seed, f in enumerate(found):
        one = replicas.outcome(CUP(epochs=1, lr=replicas.LR, batch_size=7), seed=seed)
        assert f["alone"]["history"] == one["history"]
        assert f["alone"]["processes"] == 1


def test_all_processes_repeat_the_pass_if_one_overflows(found):
    """The result is that of a run which had the right scale from the start."""
    for f in found:
        (again, single), (once, single_once) = f["overflowed"]
        for name, weight in once["weights"].items():
            torch.testing.assert_close(again["weights"][name], weight, atol=1e-6, rtol=1e-4)
        # The earlier forget pass used another scale; 40 steps on tiny gradients amplify its rounding.
        first, expected = (run["history"]["retain_norm"][:2] for run in (single, single_once))
        assert first == pytest.approx(expected, rel=1e-6)
    for first, second in zip(found[0]["overflowed"][0], found[1]["overflowed"][0], strict=True):
        assert all(torch.equal(first["weights"][name], second["weights"][name]) for name in first["weights"])


def test_the_scores_of_unlike_models_are_not_mixed(found):
    for rank, f in enumerate(found):
        one = score(replicas.of_rank(rank), replicas.split()).to_dict()
        assert f["scored_alone"] == [one, one]
    assert found[0]["scored_alone"] != found[1]["scored_alone"]


def test_the_documented_code_runs(found):
    one = unlearn(replicas.mlp(), replicas.split(), CUP(gamma=0.5, epochs=1))
    for f in found:
        assert f["documented"]["scores"] == pytest.approx(one.scores.to_dict(), abs=1e-9)
        assert f["documented"]["step"]["case"] == "pivot"
    assert found[0]["documented"] == found[1]["documented"]


def test_one_process_is_a_group_of_itself():
    single = Replicas()
    assert single == Replicas.current()
    assert single.gather(3) == [3]
    assert single.from_first(lambda: 4) == 4
    assert single.mean({"x": 2.0}, 0.1) == {"x": 2.0}
    single.check_equal("anything", object())
    single.check_weights(nn.Linear(1, 1))
    assert unlearn(replicas.mlp(), replicas.split(), CUP(epochs=1), replicas=single).diverged is None


def beside(monkeypatch, mine: nn.Module, theirs: nn.Module, kinds: tuple[str, str]) -> None:
    """Compare two replicas' weights, each on its own type of device."""
    sent = iter([list(kinds), None])

    def gather(self, value):
        devices = next(sent)
        if devices is not None:
            return [[device] for device in devices]
        fingerprint = parallel._hash if kinds[0] == kinds[1] else parallel._sums
        return [value, {name: fingerprint(tensor) for name, tensor in theirs.state_dict().items()}]

    monkeypatch.setattr(Replicas, "gather", gather)
    Replicas(0, 2).check_weights(mine)


@pytest.mark.parametrize("how", ["rows", "noise", "bit"])
def test_replicas_on_like_devices_are_the_same_to_the_last_bit(how, monkeypatch):
    mine = nn.Linear(64, 64)
    theirs = copy.deepcopy(mine)
    beside(monkeypatch, mine, theirs, ("cpu", "cpu"))
    with torch.no_grad():
        if how == "rows":
            theirs.weight.copy_(mine.weight.flip(0))
        elif how == "noise":
            theirs.weight.add_(1e-6 * torch.randn(64, 64))
        else:
            theirs.weight[3, 5] = torch.nextafter(mine.weight[3, 5], torch.tensor(9.0))
    with pytest.raises(GradPivotError, match="the replicas of weight differ"):
        beside(monkeypatch, mine, theirs, ("cpu", "cpu"))


def test_replicas_on_different_devices_may_differ_by_rounding_only(monkeypatch):
    mine = nn.Linear(64, 64)
    theirs = copy.deepcopy(mine)
    with torch.no_grad():
        theirs.weight[3, 5] = torch.nextafter(mine.weight[3, 5], torch.tensor(9.0))
    beside(monkeypatch, mine, theirs, ("cpu", "cuda"))
    with torch.no_grad():
        theirs.weight[3, 5] += 0.1
    with pytest.raises(GradPivotError, match="the replicas of weight differ"):
        beside(monkeypatch, mine, theirs, ("cpu", "cuda"))
