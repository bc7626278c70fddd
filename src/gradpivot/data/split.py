"""What to forget: a split of the training data, frozen, hashed and checked.

One split serves training, retraining, unlearning and evaluation alike, so no two of them can disagree about which
samples are which.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset, TensorDataset

from gradpivot.data.digest import dataset_digest
from gradpivot.data.loader import Collate, Collated
from gradpivot.errors import GradPivotError
from gradpivot.runtime import derive, isolated, reseed, write_text

__all__ = ["ForgetSplit"]

SPLIT_SCHEMA = "gradpivot.split/1"
Target = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class ForgetSplit:
    """Train and test data with the training indices to forget and to retain.

    Build one with :meth:`by_class`, :meth:`random`, :meth:`by_index` or :meth:`by_predicate`. Datasets are
    map-style: ``len(data)`` and ``data[i]`` giving (input, label) or whatever ``target`` reads a label from; a pair
    of arrays (inputs, labels) will do. Samples of different sizes need a ``collate_fn``, as for a DataLoader; give it
    to any of these.

    Attributes:
        train: The data the original model was trained on.
        test: Never-seen data for the final scores.
        forget_indices: Sorted indices into ``train`` that must be forgotten, D_f.
        retain_indices: All the others, D_r.
        kind: ``class``, ``random``, ``index`` or ``predicate``.
        classes: The forgotten classes, for ``class``.
        seed: What a random split was drawn with.
        validation: Never-seen data for whatever steers a run; see :meth:`with_validation`.
        validation_source: ``given``, ``half of test`` or ``none``.
        data_id: A name that stands for the data's content, if the user gave one.
        target: Reads the label of a sample.
    """

    train: Any
    test: Any
    forget_indices: np.ndarray
    retain_indices: np.ndarray
    kind: str
    classes: tuple[int, ...] = ()
    seed: int | None = None
    validation: Any = None
    validation_source: str = "none"
    data_id: str | None = None
    target: Target

    def __post_init__(self) -> None:
        if len(self.forget_indices) == 0:
            raise GradPivotError("the forget set is empty; name at least one sample to forget")
        if len(self.retain_indices) == 0:
            raise GradPivotError("the forget set is the whole training set; leave something to retain")
        both = np.concatenate([self.forget_indices, self.retain_indices])
        if not np.array_equal(np.sort(both), np.arange(len(self.train))):
            raise GradPivotError(
                f"forget and retain indices must be disjoint and cover all {len(self.train)} training samples"
            )
        if len(self.test) == 0:
            raise GradPivotError("the test set is empty; give some data the model was not trained on")
        for indices in (self.forget_indices, self.retain_indices):
            indices.setflags(write=False)

    @classmethod
    def by_class(cls, train: Any, test: Any, classes: int | Iterable[int], **options: Any) -> ForgetSplit:
        """Forget every training sample of the given class or classes.

        Args:
            train: Training data.
            test: Test data.
            classes: One label or several.
            **options: ``validation``, ``data_id``, ``target`` as in the class, and ``collate_fn``.
        """
        wanted = _whole_numbers("class", classes)
        train, options = _prepared(train, options)
        labels = _labels(train, options["target"])
        present = np.unique(labels)
        missing = sorted(set(wanted) - set(present.tolist()))
        if missing or not wanted:
            raise GradPivotError(
                f"class {', '.join(map(str, missing)) or '(none given)'} is not in the training data; "
                f"its classes are {', '.join(map(str, present.tolist()))}"
            )
        indices = np.flatnonzero(np.isin(labels, wanted))
        named = tuple(sorted({int(c) for c in wanted}))
        return cls._with(train, test, indices, kind="class", classes=named, **options)

    @classmethod
    def random(cls, train: Any, test: Any, fraction: float, seed: int = 0, **options: Any) -> ForgetSplit:
        """Forget a random fraction of the training samples, drawn with ``seed``."""
        if not 0 < fraction < 1:
            raise GradPivotError(f"the fraction to forget is {fraction}; it must lie between 0 and 1")
        train, options = _prepared(train, options)
        count = max(1, round(fraction * len(train)))
        generator = torch.Generator().manual_seed(derive(seed, "random split"))
        indices = torch.randperm(len(train), generator=generator)[:count].numpy()
        return cls._with(train, test, indices, kind="random", seed=seed, **options)

    @classmethod
    def by_index(cls, train: Any, test: Any, indices: Iterable[int], **options: Any) -> ForgetSplit:
        """Forget exactly these training samples."""
        train, options = _prepared(train, options)
        wanted = np.asarray(_whole_numbers("index", indices), dtype=np.int64)
        outside = wanted[(wanted < 0) | (wanted >= len(train))]
        if len(outside):
            raise GradPivotError(
                f"index {outside[0]} is outside the training set; indices go from 0 to {len(train) - 1}"
            )
        if len(np.unique(wanted)) != len(wanted):
            raise GradPivotError("an index to forget is named twice; name each once")
        return cls._with(train, test, wanted, kind="index", **options)

    @classmethod
    def by_predicate(cls, train: Any, test: Any, predicate: Callable[[Any], bool], **options: Any) -> ForgetSplit:
        """Forget the training samples for which ``predicate(sample)`` is true."""
        train, options = _prepared(train, options)
        with isolated():
            chosen = [i for i in range(len(train)) if predicate(_sample(train, i))]
        if not chosen:
            raise GradPivotError("the predicate is true for no training sample: there is nothing to forget")
        return cls._with(train, test, np.asarray(chosen), kind="predicate", **options)

    @classmethod
    def _with(cls, train: Any, test: Any, forget: np.ndarray, **options: Any) -> ForgetSplit:
        forget = np.sort(np.asarray(forget, dtype=np.int64))
        retain = np.setdiff1d(np.arange(len(train)), forget)
        collate: Collate | None = options.pop("collate_fn", None)
        if options.get("validation") is not None:
            options["validation"] = _collated(_as_dataset(options["validation"]), collate)
            options["validation_source"] = "given"
        return cls(
            train=_collated(train, collate),
            test=_collated(_as_dataset(test), collate),
            forget_indices=forget,
            retain_indices=retain,
            **options,
        )

    @cached_property
    def test_labels(self) -> np.ndarray:
        """The labels of the test set."""
        return _labels(self.test, self.target)

    @cached_property
    def test_indices(self) -> np.ndarray:
        """The test samples TA is measured on: without the forgotten classes for ``class``, all otherwise."""
        if self.kind != "class":
            return np.arange(len(self.test))
        kept = np.flatnonzero(~np.isin(self.test_labels, self.classes))
        if len(kept) == 0:
            raise GradPivotError("the test set has no sample of a retained class; TA cannot be measured")
        return kept

    @cached_property
    def data_digest(self) -> str:
        """What stands for the data in the hash: their content's digest, or the user's ``data_id``."""
        if self.data_id is not None:
            return f"id:{self.data_id}"
        parts = [self.train, self.test]
        if self.validation is not None:
            parts.append(self.validation)
        return hashlib.sha256("".join(dataset_digest(part) for part in parts).encode()).hexdigest()

    @cached_property
    def hash(self) -> str:
        """16 hexadecimal digits over data, kind, indices, classes and seed: the split's identity."""
        described = json.dumps(self._described(), sort_keys=True).encode()
        return hashlib.sha256(described + self.forget_indices.astype("<i8").tobytes()).hexdigest()[:16]

    def _described(self) -> dict[str, Any]:
        return {
            "data": self.data_digest,
            "kind": self.kind,
            "classes": list(self.classes),
            "seed": self.seed,
            "validation": self.validation_source,
            "n_train": len(self.train),
            "n_test": len(self.test),
            **({} if self.validation is None else {"n_validation": len(self.validation)}),
        }

    def with_validation(self) -> ForgetSplit:
        """The same split with validation data for steering.

        Given by the user, it stays. Otherwise a fixed random half of the test set becomes the validation set and the
        other half the test set, so that nothing chosen on the one is scored on it.
        """
        if self.validation is not None:
            return self
        generator = torch.Generator().manual_seed(derive(0, "validation half"))
        order = torch.randperm(len(self.test), generator=generator).tolist()
        half = len(order) // 2
        if half == 0:
            raise GradPivotError("the test set has one sample; give validation data of your own")
        return replace(
            self,
            validation=Subset(self.test, sorted(order[:half])),
            test=Subset(self.test, sorted(order[half:])),
            validation_source="half of test",
        )

    def save(self, path: str | Path) -> None:
        """Write the split (not the data) as JSON, atomically."""
        content = {
            "schema": SPLIT_SCHEMA,
            **self._described(),
            "forget_indices": self.forget_indices.tolist(),
            "hash": self.hash,
        }
        write_text(path, json.dumps(content) + "\n")

    @classmethod
    def load(cls, path: str | Path, train: Any, test: Any, **options: Any) -> ForgetSplit:
        """Read a saved split back and check that it belongs to these data.

        Raises:
            GradPivotError: if the file is damaged or was made from other data.
        """
        try:
            saved = json.loads(Path(path).read_text(encoding="utf-8"))
            if saved["schema"] != SPLIT_SCHEMA:
                raise ValueError(f"schema {saved['schema']!r}")
            indices = np.asarray(saved["forget_indices"], dtype=np.int64)
            facts = {"kind": saved["kind"], "classes": tuple(saved["classes"]), "seed": saved["seed"]}
            expected, source = saved["hash"], saved["validation"]
        except FileNotFoundError:
            raise GradPivotError(f"there is no split file {path}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise GradPivotError(f"{path} is not a split file, or is damaged ({error}); make it again") from None
        train, options = _prepared(train, options)
        if saved["data"].startswith("id:"):
            options.setdefault("data_id", saved["data"].removeprefix("id:"))
        split = cls._with(train, test, indices, **facts, **options)
        if source == "half of test":
            split = split.with_validation()
        if split.hash != expected:
            raise GradPivotError(
                f"{path} has the hash {expected}, but with these data it is {split.hash}: "
                f"the file was changed, or the data are not those it was made from"
            )
        return split

    def facts(self) -> dict[str, Any]:
        """Kind, classes, sizes and hash, for provenance and reports."""
        return {
            "kind": self.kind,
            "classes": list(self.classes),
            "split": self.hash,
            "seed": self.seed,
            "n_forget": len(self.forget_indices),
            "n_retain": len(self.retain_indices),
            "n_test": len(self.test_indices),
            "validation": self.validation_source,
        }


def _prepared(train: Any, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    options = dict(options)
    if options.get("target") is None:
        options["target"] = _second
    return _as_dataset(train), options


def _second(sample: Any) -> Any:
    """The label of an (input, label) sample or of a dictionary with a usual label name."""
    if isinstance(sample, Mapping):
        for key in ("target", "label", "labels", "y", "targets"):
            if key in sample:
                return sample[key]
    if isinstance(sample, Sequence) and not isinstance(sample, str) and len(sample) == 2:
        return sample[1]
    raise GradPivotError(
        f"cannot find the label in a sample of type {type(sample).__name__}; pass "
        f"target=lambda sample: … that returns it"
    )


def _as_dataset(data: Any) -> Any:
    """A map-style dataset, from one or from a pair of arrays (inputs, labels)."""
    if isinstance(data, tuple) and len(data) == 2 and all(hasattr(part, "shape") for part in data):
        inputs, labels = (torch.as_tensor(part) for part in data)
        if len(inputs) != len(labels):
            raise GradPivotError(f"there are {len(inputs)} inputs but {len(labels)} labels")
        return TensorDataset(inputs, labels)
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise GradPivotError(
            f"a {type(data).__name__} is not a map-style dataset (len(data) and data[i]); "
            f"wrap an iterable one in a list first"
        )
    return data


def _collated(dataset: Any, collate: Collate | None) -> Any:
    return dataset if collate is None else Collated(dataset, collate)


def _sample(dataset: Any, index: int) -> Any:
    reseed(derive(0, "digest", index))
    return dataset[index]


def _labels(dataset: Any, target: Target) -> np.ndarray:
    """All labels, without loading the inputs where the dataset keeps its labels at hand."""
    if isinstance(dataset, Collated):
        return _labels(dataset.dataset, target)
    with isolated():
        if target is _second:
            if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
                return _checked_labels(dataset.tensors[1].numpy(force=True))
            known = getattr(dataset, "targets", None)
            if known is not None and _agree(known, dataset):
                known = known.numpy(force=True) if isinstance(known, torch.Tensor) else known
                return _checked_labels(np.asarray(known))
        return _checked_labels(np.asarray([_label(target, _sample(dataset, i)) for i in range(len(dataset))]))


def _agree(known: Any, dataset: Any) -> bool:
    """Whether ``dataset.targets`` are what the samples say; a target_transform would make them differ."""
    if len(known) != len(dataset):
        return False
    places = np.unique(np.linspace(0, len(dataset) - 1, 64).astype(int)).tolist()
    return all(int(known[i]) == _label(_second, _sample(dataset, i)) for i in places)


def _label(target: Target, sample: Any) -> int:
    label = target(sample)
    try:
        return int(label)
    except (TypeError, ValueError):
        raise GradPivotError(
            f"a label is {label!r}; labels are whole numbers, so map yours to 0, 1, … with target=lambda sample: …"
        ) from None


def _checked_labels(labels: np.ndarray) -> np.ndarray:
    if labels.ndim > 1 and labels.size == len(labels):
        labels = labels.reshape(-1)
    if labels.ndim != 1:
        raise GradPivotError(
            f"the labels have the shape {labels.shape}; give one whole number a sample, not one-hot rows"
        )
    return labels


def _whole_numbers(what: str, given: Any) -> list[int]:
    """Classes or indices as a list, from a number, a sequence, an array, a tensor or, for indices, a mask."""
    array = np.asarray(given.tolist() if hasattr(given, "tolist") else list(given) if _is_many(given) else [given])
    if what == "index" and array.dtype == bool:
        return [int(i) for i in np.flatnonzero(array)]
    if array.size and array.dtype.kind not in "iu":
        raise GradPivotError(f"a {what} to forget is {array.reshape(-1)[0]!r}; give whole numbers")
    return [int(number) for number in array.reshape(-1)]


def _is_many(given: Any) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, str | bytes)
