"""What is audited: a model, the models it is compared with, and their outputs, each computed once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from gradpivot.auditing.attack import NotTestedError
from gradpivot.data import ForgetSplit, Loader, cut
from gradpivot.errors import NonFiniteError
from gradpivot.evaluate import fixed_subset, matching_test_indices
from gradpivot.runtime import derive, evaluating, isolated
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradpivot.auditing.worlds import Worlds

__all__ = ["Outputs", "Part", "Subject"]

Part = Literal["forget", "retain", "unseen", "test"]

_BATCH = 256
MAX_RETAIN = 5000
"""Retained samples that are looked at, the same random ones for every model."""
_MASKED = -1e4
"""Stands for a logit of minus infinity, by which some models mask a class."""


class Outputs(NamedTuple):
    """A model's logits (n×k, float64) and the true labels (n) on one part of the data."""

    logits: NDArray[np.float64]
    labels: NDArray[np.int64]

    @property
    def log_probabilities(self) -> NDArray[np.float64]:
        """Log-probabilities log p(class | x), n×k."""
        shifted = self.logits - self.logits.max(axis=1, keepdims=True)
        normalised: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return normalised

    @property
    def loss(self) -> NDArray[np.float64]:
        """Cross-entropy −log p(true label | x)."""
        losses: NDArray[np.float64] = -self.log_probabilities[np.arange(len(self.labels)), self.labels]
        return losses

    @property
    def margin(self) -> NDArray[np.float64]:
        """Scaled margin of U-LiRA: logit of the true label minus logsumexp of the others; log p/(1 − p)."""
        rows = np.arange(len(self.labels))
        own = self.logits[rows, self.labels]
        others = self.logits.copy()
        others[rows, self.labels] = -np.inf
        top = others.max(axis=1)
        margins: NDArray[np.float64] = own - top - np.log(np.exp(others - top[:, None]).sum(axis=1))
        return margins

    @property
    def entropy(self) -> NDArray[np.float64]:
        """Entropy of the predictive distribution, in nats."""
        log_p = self.log_probabilities
        entropies: NDArray[np.float64] = -(np.exp(log_p) * log_p).sum(axis=1)
        return entropies

    @property
    def predicted(self) -> NDArray[np.int64]:
        """Predicted class."""
        classes: NDArray[np.int64] = self.logits.argmax(axis=1)
        return classes

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the prediction is right."""
        return np.asarray(self.predicted == self.labels)


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """The audited model and what it is compared with.

    Attributes:
        model: The model that claims to have forgotten.
        split: What it was to forget.
        original: The model before unlearning, or None.
        retrained: Models trained without the forgotten data. The first is the control, further ones give the noise
            between retrained models.
        task: How to run the models on a batch.
        worlds: Shadow models' margins, for attacks at level ``full``; None otherwise.
        seed: Seed of everything random in the attacks.
        workers: Data-loading processes.
    """

    model: nn.Module
    split: ForgetSplit
    original: nn.Module | None = None
    retrained: tuple[nn.Module, ...] = ()
    task: Classification = field(default_factory=Classification)
    worlds: Worlds | None = None
    seed: int = 0
    workers: int = 0

    @cached_property
    def _outputs(self) -> dict[tuple[int, Part], Outputs]:
        return {}

    @property
    def models(self) -> Mapping[str, nn.Module]:
        """The models by role: ``audited``, and ``retrained`` and ``original`` where given."""
        found = {"audited": self.model, "retrained": next(iter(self.retrained), None), "original": self.original}
        return {role: model for role, model in found.items() if model is not None}

    @property
    def is_class(self) -> bool:
        """Whether whole classes were forgotten, so that a retrained model recognises none of them."""
        return self.split.kind == "class"

    def control(self, attack: str = "this attack") -> nn.Module:
        """The retrained model.

        Raises:
            NotTestedError: If there is none.
        """
        if not self.retrained:
            raise NotTestedError(f"{attack} needs a retrained model; pass retrain=, or run level standard on a problem")
        return self.retrained[0]

    def indices(self, part: Part) -> np.ndarray:
        """Indices of a part in the training data (forget, retain) or the test data (unseen, test).

        ``unseen`` are test samples comparable to the forget set: of the forgotten classes, or all of them.
        """
        if part == "forget":
            return self.split.forget_indices
        if part == "retain":
            return fixed_subset(self.split.retain_indices, MAX_RETAIN)
        return matching_test_indices(self.split) if part == "unseen" else self.split.test_indices

    def dataset(self, part: Part) -> Any:
        """The data that :meth:`indices` refers to."""
        return self.split.train if part in ("forget", "retain") else self.split.test

    def outputs(self, model: nn.Module, part: Part) -> Outputs:
        """A model's outputs on a part, computed once for the subject's own models.

        Raises:
            NotTestedError: If the part is empty.
            NonFiniteError: If the outputs are not finite.
        """
        key = (id(model), part)
        own = any(model is known for known in (self.model, self.original, *self.retrained))
        if key in self._outputs and own:
            return self._outputs[key]
        found = self.outputs_at(model, self.dataset(part), self.indices(part))
        if own:
            self._outputs[key] = found
        return found

    @torch.no_grad()
    def outputs_at(self, model: nn.Module, dataset: Any, indices: np.ndarray) -> Outputs:
        """A model's outputs on any samples, in eval mode; a logit of −∞ (a masked class) becomes −10,000.

        Raises:
            NotTestedError: If there are no samples.
            NonFiniteError: If an output is NaN or +∞.
        """
        if len(indices) == 0:
            raise NotTestedError("there is no unseen sample of the forgotten classes in the test data")
        logits, labels = [], []
        with evaluating(model), isolated(derive(self.seed, "audit")):
            for batch in self.batches(model, dataset, cut(indices, _BATCH)):
                found, targets = self.task.logits(model, batch)
                logits.append(found.double().cpu().numpy())
                labels.append(targets.cpu().numpy())
        found_logits = np.concatenate(logits)
        joined = Outputs(np.where(np.isneginf(found_logits), _MASKED, found_logits), np.concatenate(labels))
        if not np.isfinite(joined.logits).all():
            raise NonFiniteError("a model's outputs are not finite: its weights or inputs contain NaN or infinity")
        return joined

    def batches(self, model: nn.Module, dataset: Any, order: Sequence[np.ndarray]) -> Iterator[Any]:
        """Batches of samples on the model's device."""
        device = next(model.parameters()).device
        return Loader(dataset, device, seed=self.seed, workers=self.workers).batches(order, epoch=-1)
