"""Split of the training data into forget and retain sets: immutable, validated and hashed.

Training, retraining, unlearning and evaluation all use the same split.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset

from gradpivot.data.arguments import as_dataset, integers, training_indices, training_set
from gradpivot.data.digest import dataset_digest
from gradpivot.data.identifiers import find_records
from gradpivot.data.labels import Target, default_target, labels_of, sample_at
from gradpivot.data.loader import Collate, Collated
from gradpivot.errors import GradPivotError, number_or_nan
from gradpivot.runtime import derive, isolated, parse_json, write_text

__all__ = ["ForgetSplit"]

SPLIT_SCHEMA = "gradpivot.split/1"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ForgetSplit:
    """Train and test data with the training indices to forget and to retain.

    Build one with :meth:`by_class`, :meth:`random`, :meth:`by_index`, :meth:`by_id` or :meth:`by_predicate`. Each takes
    map-style datasets or pairs of arrays (inputs, labels). Samples are (input, label); ``target`` reads the label of
    any other form. Samples of different sizes need a ``collate_fn``, as for a DataLoader.

    Records that an earlier request deleted, but that are still in ``train``, are passed as ``already_forgotten``: as
    training indices, as the earlier split, or as the file of one. They are in neither set, so that the next request
    does not teach them again. A split carries those of the splits before it.

    Attributes:
        train: Training data of the original model.
        test: Held-out data for the final scores.
        forget_indices: Sorted indices of the forget set D_f in ``train``.
        retain_indices: Sorted indices of the retain set D_r, all the others.
        already_forgotten: Sorted indices of the records that earlier requests deleted.
        kind: ``class``, ``random``, ``index`` or ``predicate``.
        classes: Forgotten classes of a ``class`` split.
        seed: Seed of a ``random`` split.
        validation: Held-out data for decisions during a run; see :meth:`with_validation`.
        validation_source: ``given``, ``half of test`` or ``none``.
        data_id: Identifier used instead of the data's digest, if given.
        target: Returns the label of a sample.
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
    already_forgotten: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if len(self.forget_indices) == 0:
            raise GradPivotError("the forget set is empty; it needs at least one sample")
        if len(self.retain_indices) == 0:
            rest = " but what is already forgotten" if len(self.already_forgotten) else ""
            raise GradPivotError(f"the forget set is the whole training set{rest}; leave at least one sample to retain")
        parts = (self.forget_indices, self.retain_indices, self.already_forgotten)
        if not np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(self.train))):
            raise GradPivotError(
                f"forget, retain and already forgotten indices must be disjoint and cover all {len(self.train)} "
                f"training samples"
            )
        if len(self.test) == 0:
            raise GradPivotError("the test set is empty; pass data the model was not trained on")
        if self.validation is not None and len(self.validation) == 0:
            raise GradPivotError("the validation set is empty; pass data the model was not trained on, or None")
        for indices in parts:
            indices.setflags(write=False)

    def __repr__(self) -> str:
        sizes = f"{len(self.forget_indices):,} to forget, {len(self.retain_indices):,} to retain"
        if len(self.already_forgotten):
            sizes += f", {len(self.already_forgotten):,} already forgotten"
        classes = f" {', '.join(map(str, self.classes))}" if self.classes else ""
        return f"ForgetSplit({self.kind}{classes}: {sizes})"

    @classmethod
    def by_class(cls, train: Any, test: Any, classes: int | Iterable[int], **options: Any) -> ForgetSplit:
        """Forget every training sample of the given class or classes that is not yet forgotten.

        Args:
            train: Training data.
            test: Test data.
            classes: Label or labels to forget.
            **options: ``validation``, ``data_id``, ``target`` and ``already_forgotten`` (see the class), and
                ``collate_fn``.
        """
        wanted = integers("class", classes).tolist()
        train, options = _prepared(train, test, options)
        labels = labels_of(train, options["target"])
        present = np.unique(labels)
        missing = sorted(set(wanted) - set(present.tolist()))
        if missing or not wanted:
            raise GradPivotError(
                f"class {', '.join(map(str, missing)) or '(none given)'} is not in the training data; "
                f"its classes are {', '.join(map(str, present.tolist()))}"
            )
        indices = _not_in(options["already_forgotten"], np.flatnonzero(np.isin(labels, wanted)))
        if len(indices) == 0:
            raise GradPivotError(
                f"every training sample of class {', '.join(map(str, wanted))} is already forgotten; name another class"
            )
        named = tuple(sorted({int(c) for c in wanted}))
        return cls._with(train, test, indices, kind="class", classes=named, **options)

    @classmethod
    def random(cls, train: Any, test: Any, fraction: float, seed: int = 0, **options: Any) -> ForgetSplit:
        """Forget a random fraction of the training samples that are not yet forgotten, drawn with ``seed``."""
        if not 0 < number_or_nan(fraction) < 1:
            raise GradPivotError(f"the fraction to forget is {fraction!r}; it must be between 0 and 1")
        if not isinstance(seed, Integral):
            raise GradPivotError(f"the seed of the split is {seed!r}; pass an integer")
        train, options = _prepared(train, test, options)
        left = _not_in(options["already_forgotten"], np.arange(len(train)))
        count = max(1, round(fraction * len(left)))
        generator = torch.Generator().manual_seed(derive(int(seed), "random split"))
        indices = left[torch.randperm(len(left), generator=generator)[:count].numpy()]
        return cls._with(train, test, indices, kind="random", seed=int(seed), **options)

    @classmethod
    def by_index(cls, train: Any, test: Any, indices: Iterable[int], **options: Any) -> ForgetSplit:
        """Forget exactly these training samples."""
        train, options = _prepared(train, test, options)
        wanted = training_indices(indices, len(train))
        if len(np.unique(wanted)) != len(wanted):
            raise GradPivotError("the indices to forget contain duplicates; each may appear only once")
        twice = np.intersect1d(wanted, options["already_forgotten"])
        if len(twice):
            raise GradPivotError(
                f"{len(twice)} of the {len(wanted)} indices to forget, such as {twice[0]}, are already forgotten; "
                f"leave them out of the request"
            )
        return cls._with(train, test, wanted, kind="index", **options)

    @classmethod
    def by_id(cls, train: Any, test: Any, ids: Iterable[Any], all_ids: Iterable[Any], **options: Any) -> ForgetSplit:
        """Forget every training sample that has one of these ids; see :func:`gradpivot.data.find_records`.

        Args:
            train: Training data.
            test: Test data.
            ids: The ids to forget, such as customer numbers; repeated ones count once.
            all_ids: The id of each training sample, in the order of ``train``. Several samples may share one.
            **options: As for :meth:`by_index`.
        """
        train = training_set(train)
        return cls.by_index(train, test, find_records(ids, all_ids, len(train)), **options)

    @classmethod
    def by_predicate(cls, train: Any, test: Any, predicate: Callable[[Any], bool], **options: Any) -> ForgetSplit:
        """Forget the training samples for which ``predicate(sample)`` is true and that are not yet forgotten."""
        if not callable(predicate):
            raise GradPivotError(f"the predicate is {predicate!r}; pass a function of a sample")
        train, options = _prepared(train, test, options)
        left = _not_in(options["already_forgotten"], np.arange(len(train))).tolist()
        with isolated():
            chosen = [i for i in left if predicate(sample_at(train, i))]
        if not chosen:
            raise GradPivotError("the predicate is true for no training sample, so there is nothing to forget")
        return cls._with(train, test, np.asarray(chosen), kind="predicate", **options)

    @classmethod
    def _with(cls, train: Any, test: Any, forget: np.ndarray, **options: Any) -> ForgetSplit:
        forget = np.sort(np.asarray(forget, dtype=np.int64))
        taken = np.concatenate([forget, options.get("already_forgotten", forget)])
        retain = np.setdiff1d(np.arange(len(train)), taken)
        collate: Collate | None = options.pop("collate_fn", None)
        if options.get("validation") is not None:
            options["validation"] = _collated(as_dataset(options["validation"]), collate)
            options["validation_source"] = "given"
        return cls(
            train=_collated(train, collate),
            test=_collated(as_dataset(test), collate),
            forget_indices=forget,
            retain_indices=retain,
            **options,
        )

    @cached_property
    def test_labels(self) -> np.ndarray:
        """Labels of the test set."""
        return labels_of(self.test, self.target)

    @cached_property
    def test_indices(self) -> np.ndarray:
        """Test samples that count for TA: all of them, except those of forgotten classes.

        Forgotten are the classes of a ``class`` split and :attr:`deleted_classes`.
        """
        gone = (*self.classes, *self.deleted_classes) if self.kind == "class" else self.deleted_classes
        if not gone:
            return np.arange(len(self.test))
        kept = np.flatnonzero(~np.isin(self.test_labels, gone))
        if len(kept) == 0:
            raise GradPivotError("the test set has no sample of a retained class; TA needs at least one")
        return kept

    @cached_property
    def deleted_classes(self) -> tuple[int, ...]:
        """Classes that earlier requests deleted entirely, so that a retrained model does not know them."""
        if len(self.already_forgotten) == 0:
            return ()
        labels = labels_of(self.train, self.target)
        gone = np.setdiff1d(labels[self.already_forgotten], np.delete(labels, self.already_forgotten))
        return tuple(gone.tolist())

    def known_indices(self, data: Any) -> np.ndarray:
        """Indices of the samples in ``data`` (test or validation) whose class no earlier request deleted entirely."""
        if not self.deleted_classes:
            return np.arange(len(data))
        return np.flatnonzero(~np.isin(labels_of(data, self.target), self.deleted_classes))

    @cached_property
    def data_digest(self) -> str:
        """Identity of the data in the hash: ``data_id`` if given, otherwise a digest of the content."""
        if self.data_id is not None:
            return f"id:{self.data_id}"
        parts = [self.train, self.test]
        if self.validation is not None:
            parts.append(self.validation)
        return hashlib.sha256("".join(dataset_digest(part) for part in parts).encode()).hexdigest()

    @cached_property
    def hash(self) -> str:
        """Identity of the split: hash of data, kind, indices, classes and seed (16 hex digits)."""
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
            # Left out if there are none, so that such splits keep their hash.
            **({"already_forgotten": self.already_forgotten.tolist()} if len(self.already_forgotten) else {}),
        }

    def with_validation(self) -> ForgetSplit:
        """The same split with validation data.

        Keeps validation data that the user passed. Otherwise a fixed random half of the test set becomes the validation
        set and only the other half remains for testing, so nothing is scored on data it was chosen on.
        """
        if self.validation is not None:
            return self
        generator = torch.Generator().manual_seed(derive(0, "validation half"))
        order = torch.randperm(len(self.test), generator=generator).tolist()
        half = len(order) // 2
        if half == 0:
            raise GradPivotError("the test set has only one sample; pass validation data")
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
        """Load a saved split and check that it belongs to these data.

        Raises:
            GradPivotError: if the file is missing, damaged or was made from other data.
        """
        try:
            saved = parse_json(Path(path).read_text(encoding="utf-8"))
            if saved["schema"] != SPLIT_SCHEMA:
                raise ValueError(f"schema {saved['schema']!r}")
            indices = np.asarray(saved["forget_indices"], dtype=np.int64)
            facts = {"kind": str(saved["kind"]), "classes": tuple(map(int, saved["classes"])), "seed": saved["seed"]}
            facts["already_forgotten"] = np.asarray(saved.get("already_forgotten", ()), dtype=np.int64)
            expected, source, data = saved["hash"], saved["validation"], str(saved["data"])
            if indices.ndim != 1 or facts["already_forgotten"].ndim != 1 or not isinstance(saved["seed"], int | None):
                raise ValueError("its indices are lists of integers, and its seed is an integer or null")
        except FileNotFoundError:
            raise GradPivotError(f"there is no split file {path}") from None
        except OSError as error:
            raise GradPivotError(f"cannot read the split file {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise GradPivotError(f"{path} is damaged or not a split file ({error}); save the split again") from None
        train, options = _prepared(train, test, options)
        options |= facts
        if data.startswith("id:"):
            options.setdefault("data_id", data.removeprefix("id:"))
        split = cls._with(train, test, indices, **options)
        if source == "half of test":
            split = split.with_validation()
        if split.hash != expected:
            raise GradPivotError(
                f"{path} has hash {expected}, but with these data it is {split.hash}: the file was edited or made "
                f"from other data"
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
            **({"n_already_forgotten": len(self.already_forgotten)} if len(self.already_forgotten) else {}),
            "n_test": len(self.test_indices),
            "validation": self.validation_source,
        }


def _prepared(train: Any, test: Any, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    options = dict(options)
    if options.get("target") is None:
        options["target"] = default_target
    train = training_set(train)
    options["already_forgotten"] = _already_forgotten(options.pop("already_forgotten", None), train, test, options)
    return train, options


def _already_forgotten(given: Any, train: Any, test: Any, options: Mapping[str, Any]) -> np.ndarray:
    """Sorted indices of the records that earlier requests deleted: given as indices, a split or a saved split."""
    if given is None:
        return np.empty(0, dtype=np.int64)
    if isinstance(given, str | Path):
        given = ForgetSplit.load(given, train, test, **options)
    if not isinstance(given, ForgetSplit):
        return np.unique(training_indices(given, len(train)))
    if not _is_same_data(given, train, options.get("data_id")):
        raise GradPivotError(
            "already_forgotten is a split of other training data, whose indices mean other records; pass the indices "
            "in these data, or only what is still in them"
        )
    return np.union1d(given.forget_indices, given.already_forgotten)


def _is_same_data(earlier: ForgetSplit, train: Any, data_id: str | None) -> bool:
    if len(earlier.train) != len(train):
        return False
    ids = earlier.data_id, data_id
    if ids != (None, None):
        # Data with an identifier are not read.
        return None in ids or len(set(ids)) == 1
    return earlier.train is train or dataset_digest(earlier.train) == dataset_digest(train)


def _not_in(excluded: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return indices[~np.isin(indices, excluded)]


def _collated(dataset: Any, collate: Collate | None) -> Any:
    return dataset if collate is None else Collated(dataset, collate)
