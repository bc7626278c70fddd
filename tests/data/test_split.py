from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from gradpivot import ForgetSplit
from gradpivot.data.readers.digits import load_digits
from gradpivot.data.readers.gaussians import CENTRES, load_gaussians
from gradpivot.errors import GradPivotError


def data(samples: int = 30, seed: int = 0) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(samples, 2, generator=generator), torch.arange(samples) % 3)


class Dictionaries(Dataset):
    def __init__(self, noisy: bool = False) -> None:
        self.noisy = noisy

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict:
        noise = torch.rand(2) if self.noisy else torch.zeros(2)
        return {"pixels": torch.full((2,), float(index)) + noise, "label": index % 4}


def test_by_class():
    split = ForgetSplit.by_class(data(), data(9, seed=1), 1)
    labels = data().tensors[1]
    assert (labels[split.forget_indices.copy()] == 1).all()
    assert not (labels[split.retain_indices.copy()] == 1).any()
    assert (split.kind, split.classes) == ("class", (1,))
    assert not (split.test_labels[split.test_indices] == 1).any()
    assert ForgetSplit.by_class(data(), data(9), [0, 2]).classes == (0, 2)


def test_random_is_a_fraction_decided_by_the_seed():
    a, b, c = (ForgetSplit.random(data(), data(9), 0.2, seed=s) for s in (0, 0, 1))
    assert len(a.forget_indices) == 6
    assert np.array_equal(a.forget_indices, b.forget_indices)
    assert not np.array_equal(a.forget_indices, c.forget_indices)
    assert len(a.test_indices) == 9


def test_by_index_and_predicate():
    assert ForgetSplit.by_index(data(), data(9), [5, 2]).forget_indices.tolist() == [2, 5]
    split = ForgetSplit.by_predicate(data(), data(9), lambda sample: bool(sample[0][0] > 0))
    assert (data().tensors[0][split.forget_indices.copy(), 0] > 0).all()
    assert split.kind == "predicate"


def test_is_frozen_disjoint_and_complete():
    split = ForgetSplit.by_class(data(), data(9), 1)
    with pytest.raises(AttributeError):
        split.kind = "random"
    with pytest.raises(ValueError, match="read-only"):
        split.forget_indices[0] = 3
    both = np.concatenate([split.forget_indices, split.retain_indices])
    assert sorted(both) == list(range(30))
    with pytest.raises(GradPivotError, match="disjoint and cover"):
        ForgetSplit(
            train=data(), test=data(9), forget_indices=np.array([0, 1]), retain_indices=np.arange(1, 30),
            kind="index", target=lambda sample: sample[1],
        )  # fmt: skip


def test_hash_covers_content_indices_kind_and_seed():
    base = ForgetSplit.by_class(data(), data(9), 1).hash
    assert base == ForgetSplit.by_class(data(), data(9), 1).hash
    assert len(base) == 16
    others = [
        ForgetSplit.by_class(data(), data(9), 2),
        ForgetSplit.by_class(data(seed=5), data(9), 1),
        ForgetSplit.by_class(data(), data(9, seed=5), 1),
        ForgetSplit.by_index(data(), data(9), ForgetSplit.by_class(data(), data(9), 1).forget_indices),
        ForgetSplit.by_class(data(), data(9), 1, data_id="mine"),
        ForgetSplit.random(data(), data(9), 0.5, seed=1),
        ForgetSplit.random(data(), data(9), 0.5, seed=2),
    ]
    assert len({base, *(other.hash for other in others)}) == 8


def test_arrays_dictionaries_and_own_labels():
    arrays = (np.random.default_rng(0).normal(size=(9, 2)).astype("float32"), np.arange(9) % 3)
    assert len(ForgetSplit.by_class(arrays, arrays, 0).forget_indices) == 3
    split = ForgetSplit.by_class(Dictionaries(), Dictionaries(), 3)
    assert split.forget_indices.tolist() == [3, 7, 11]
    own = ForgetSplit.by_class(Dictionaries(), Dictionaries(), 1, target=lambda s: int(s["pixels"][0]) // 6)
    assert own.forget_indices.tolist() == [6, 7, 8, 9, 10, 11]


def test_reading_noisy_data_leaves_the_callers_randomness_alone_and_hashes_the_same():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    hashes = {ForgetSplit.by_class(Dictionaries(noisy=True), Dictionaries(), 3).hash for _ in range(2)}
    assert len(hashes) == 1
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ForgetSplit.by_class(data(), data(9), 7), r"class 7 is not in .* its classes are 0, 1, 2"),
        (lambda: ForgetSplit.by_class(data(), data(9), []), r"\(none given\)"),
        (lambda: ForgetSplit.by_class(data(), data(9), [0, 1, 2]), "leave at least one sample to retain"),
        (lambda: ForgetSplit.random(data(), data(9), 0), "between 0 and 1"),
        (lambda: ForgetSplit.random(data(), data(9), 1.5), "between 0 and 1"),
        (lambda: ForgetSplit.by_index(data(), data(9), []), "forget set is empty"),
        (lambda: ForgetSplit.by_index(data(), data(9), [30]), "between 0 and 29"),
        (lambda: ForgetSplit.by_index(data(), data(9), [-1]), "between 0 and 29"),
        (lambda: ForgetSplit.by_index(data(), data(9), [1, 1]), "contain duplicates"),
        (lambda: ForgetSplit.by_predicate(data(), data(9), lambda s: False), "nothing to forget"),
        (lambda: ForgetSplit.by_class(data(), data(0), 1), "test set is empty"),
        (lambda: ForgetSplit.by_class(iter([]), data(9), 1), "map-style"),
        (lambda: ForgetSplit.by_class([object()], data(9), 1), "pass target="),
        (lambda: ForgetSplit.by_index(data(), data(9), [1.5, 2.9]), "must be an integer"),
        (lambda: ForgetSplit.by_index(data(), data(9), "12"), "must be an integer"),
        (lambda: ForgetSplit.by_class(data(), data(9), "1"), "must be an integer"),
        (lambda: ForgetSplit.by_class([(0, "cat")], data(9), 1), "a label is 'cat'"),
        (lambda: ForgetSplit.by_class((np.ones((3, 2)), np.eye(3)), data(9), 1), "one-hot"),
        (lambda: ForgetSplit.by_class((np.ones((3, 2)), np.ones(2)), data(9), 1), "3 inputs but 2 labels"),
    ],
)
def test_what_cannot_be_is_explained(make, message):
    with pytest.raises(GradPivotError, match=message):
        make()


def test_test_set_without_a_retained_class_is_explained():
    only = TensorDataset(torch.zeros(3, 2), torch.ones(3, dtype=torch.long))
    with pytest.raises(GradPivotError, match="TA needs at least one"):
        _ = ForgetSplit.by_class(data(), only, 1).test_indices


def test_saves_and_loads(tmp_path):
    split = ForgetSplit.random(data(), data(9), 0.3, seed=4)
    split.save(tmp_path / "split.json")
    again = ForgetSplit.load(tmp_path / "split.json", data(), data(9))
    assert again.hash == split.hash
    assert again.facts() == split.facts()
    named = ForgetSplit.by_class(data(), data(9), 1, data_id="mine")
    named.save(tmp_path / "named.json")
    assert ForgetSplit.load(tmp_path / "named.json", data(), data(9)).hash == named.hash


def test_loading_with_other_data_or_a_changed_file_is_refused(tmp_path):
    path = tmp_path / "split.json"
    ForgetSplit.by_class(data(), data(9), 1).save(path)
    with pytest.raises(GradPivotError, match="made from other data"):
        ForgetSplit.load(path, data(seed=1), data(9))
    content = json.loads(path.read_text())
    content["forget_indices"][0] = 0
    path.write_text(json.dumps(content))
    with pytest.raises(GradPivotError, match="the file was edited"):
        ForgetSplit.load(path, data(), data(9))
    path.write_text(path.read_text()[:40])
    with pytest.raises(GradPivotError, match="damaged"):
        ForgetSplit.load(path, data(), data(9))
    with pytest.raises(GradPivotError, match="no split file"):
        ForgetSplit.load(tmp_path / "none.json", data(), data(9))


def test_validation_is_given_or_half_of_the_test_set():
    split = ForgetSplit.by_class(data(), data(9, seed=1), 1)
    assert split.validation is None
    steering = split.with_validation()
    assert (len(steering.validation), len(steering.test)) == (4, 5)
    assert not set(steering.validation.indices) & set(steering.test.indices)
    assert steering.validation_source == "half of test"
    assert steering.hash != split.hash
    given = ForgetSplit.by_class(data(), data(9), 1, validation=data(5, seed=2))
    assert given.with_validation() is given
    assert given.validation_source == "given"


def test_embedded_data():
    train, test = load_digits()
    assert (len(train), len(test)) == (1437, 360)
    images, labels = train.tensors
    assert images.shape[1:] == (1, 8, 8)
    assert 0 <= images.min() <= images.max() <= 1
    assert sorted(set(labels.tolist())) == list(range(10))
    points, clusters = load_gaussians(samples=5000)[0].tensors
    means = torch.stack([points[clusters == c].mean(0) for c in range(5)])
    torch.testing.assert_close(means, torch.tensor(CENTRES), atol=0.2, rtol=0)


class Shifted(Dataset):
    """Like torchvision's with a target_transform: ``targets`` are not what the samples say."""

    def __init__(self, shift: int) -> None:
        self.targets, self.shift = (torch.arange(30) % 3).tolist(), shift

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> tuple:
        return torch.zeros(2), (self.targets[index] + self.shift) % 3


@pytest.mark.parametrize("shift", [0, 1])
def test_labels_are_what_the_samples_say(shift):
    split = ForgetSplit.by_class(Shifted(shift), data(9), 1)
    assert {split.train[i][1] for i in split.forget_indices} == {1}


@pytest.mark.parametrize("classes", [1, np.int64(1), torch.tensor(1), torch.tensor([1]), np.array([1]), (1,), {1}])
def test_classes_of_any_kind(classes):
    assert ForgetSplit.by_class(data(), data(9), classes).classes == (1,)


def test_indices_as_a_mask():
    mask = np.zeros(30, dtype=bool)
    mask[[4, 9]] = True
    assert ForgetSplit.by_index(data(), data(9), mask).forget_indices.tolist() == [4, 9]


def test_halves_survive_saving(tmp_path):
    steering = ForgetSplit.by_class(data(), data(9, seed=1), 1, data_id="x").with_validation()
    steering.save(tmp_path / "split.json")
    again = ForgetSplit.load(tmp_path / "split.json", data(), data(9, seed=1))
    assert again.test.indices == steering.test.indices


def test_objects_cannot_be_hashed_and_say_so():
    samples = [(np.array([object()], dtype=object), i % 2) for i in range(4)]
    with pytest.raises(GradPivotError, match="data_id"):
        _ = ForgetSplit.by_class(samples, samples, 0).hash


def test_a_collate_fn_goes_with_all_data_and_changes_no_digest():
    train, test = data(), data(seed=1)
    options = {"validation": data(seed=2)}
    plain = ForgetSplit.by_class(train, test, 0, **options)
    own = ForgetSplit.by_class(train, test, 0, collate_fn=list, **options)
    assert own.hash == plain.hash
    assert own.test_labels.tolist() == plain.test_labels.tolist()
    assert all(part.collate_fn is list for part in (own.train, own.test, own.validation))


def by_index(indices, earlier, train=None) -> ForgetSplit:
    return ForgetSplit.by_index(data() if train is None else train, data(9), indices, already_forgotten=earlier)


HASHES = ["29398771f4cb2dd7", "d3b1b903ad77327b", "96eaa7ddaf85124e"]


class TestAlreadyForgotten:
    """Records that an earlier request deleted are in neither set."""

    def test_they_are_in_neither_set(self):
        split = ForgetSplit.by_index(data(), data(9), [5, 2], already_forgotten=[9, 7])
        assert split.already_forgotten.tolist() == [7, 9]
        assert split.forget_indices.tolist() == [2, 5]
        assert len(split.retain_indices) == 26
        assert not {7, 9, 2, 5} & set(split.retain_indices.tolist())
        assert not split.already_forgotten.flags.writeable
        assert repr(split) == "ForgetSplit(index: 2 to forget, 26 to retain, 2 already forgotten)"
        assert split.facts()["n_already_forgotten"] == 2

    def test_every_kind_takes_only_what_is_left(self):
        earlier = ForgetSplit.by_index(data(), data(9), range(10))
        by_class = ForgetSplit.by_class(data(), data(9), 1, already_forgotten=earlier)
        assert by_class.forget_indices.tolist() == [10, 13, 16, 19, 22, 25, 28]
        random = ForgetSplit.random(data(), data(9), 0.5, seed=1, already_forgotten=earlier)
        assert len(random.forget_indices) == 10
        assert random.forget_indices.min() >= 10
        chosen = ForgetSplit.by_predicate(data(), data(9), lambda s: int(s[1]) == 0, already_forgotten=earlier)
        assert chosen.forget_indices.tolist() == [12, 15, 18, 21, 24, 27]

    def test_requests_stack(self, tmp_path):
        first = ForgetSplit.by_index(data(), data(9), [1, 2])
        second = ForgetSplit.by_index(data(), data(9), [3], already_forgotten=first)
        second.save(tmp_path / "split.json")
        for earlier in (second, tmp_path / "split.json", str(tmp_path / "split.json"), np.arange(30) % 30 < 4):
            third = ForgetSplit.by_index(data(), data(9), [4], already_forgotten=earlier)
            assert set(third.already_forgotten.tolist()) - {0} == {1, 2, 3}

    @pytest.mark.parametrize("none", [None, [], np.array([], dtype=np.int64)])
    def test_without_any_a_split_and_its_file_are_as_before(self, none, tmp_path):
        made = [
            ForgetSplit.random(data(), data(9), 0.3, seed=4, data_id="pinned", already_forgotten=none),
            ForgetSplit.by_index(data(), data(9), [2, 5], data_id="pinned", already_forgotten=none),
            ForgetSplit.by_class(data(), data(9), 1, data_id="pinned", already_forgotten=none),
        ]
        # From the version before already_forgotten: stored runs are found by these.
        assert [split.hash for split in made] == HASHES
        for split in made:
            split.save(tmp_path / "split.json")
            assert "already" not in (tmp_path / "split.json").read_text()
            assert "already" not in str(split.facts())
            assert "already" not in repr(split)

    def test_they_are_hashed_saved_and_loaded(self, tmp_path):
        split = ForgetSplit.by_index(data(), data(9), [5, 2], already_forgotten=[9, 7]).with_validation()
        assert split.hash != ForgetSplit.by_index(data(), data(9), [5, 2]).with_validation().hash
        assert split.hash != ForgetSplit.by_index(data(), data(9), [5, 2], already_forgotten=[9]).with_validation().hash
        split.save(tmp_path / "split.json")
        again = ForgetSplit.load(tmp_path / "split.json", data(), data(9))
        assert again.hash == split.hash
        assert again.already_forgotten.tolist() == [7, 9]
        assert again.retain_indices.tolist() == split.retain_indices.tolist()

    def test_a_class_deleted_earlier_is_out_of_scope(self):
        first = ForgetSplit.by_class(data(), data(9), 1)
        records = ForgetSplit.by_index(data(), data(9), [0, 2], already_forgotten=first)
        assert records.deleted_classes == (1,)
        assert records.test_labels[records.test_indices].tolist() == [0, 2, 0, 2, 0, 2]
        both = ForgetSplit.by_class(data(), data(9), 2, already_forgotten=first)
        assert set(both.test_labels[both.test_indices]) == {0}
        assert ForgetSplit.by_index(data(), data(9), [0], already_forgotten=[1, 4]).deleted_classes == ()

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda one: by_index([3, 2, 5], one), r"2 of the 3 indices to forget, such as 2, .* leave them out"),
            (
                lambda _: ForgetSplit.by_class(data(), data(9), 1, already_forgotten=range(1, 30, 3)),
                "class 1 is already",
            ),
            (lambda _: by_index([1], [30]), "between 0 and 29"),
            (lambda _: by_index([1], ["a"]), "must be an integer"),
            (lambda _: by_index([1], "no.json"), "no split file no.json"),
            (lambda one: by_index([i for i in range(30) if i not in (2, 5)], one), "to retain"),
            (lambda one: by_index([1], one, data(30, seed=1)), "split of other training data"),
            (lambda one: by_index([1], one, data(33)), "split of other training data"),
        ],
    )
    def test_what_cannot_be_is_explained(self, make, message):
        with pytest.raises(GradPivotError, match=message):
            make(by_index([2, 5], None))

    def test_data_with_an_identifier_are_not_read_to_compare_them(self):
        earlier = ForgetSplit.by_index(data(), data(9), [2], data_id="mine")
        assert ForgetSplit.by_index(data(seed=1), data(9), [1], data_id="mine", already_forgotten=earlier)
        with pytest.raises(GradPivotError, match="other training data"):
            ForgetSplit.by_index(data(), data(9), [1], data_id="yours", already_forgotten=earlier)
