"""Rewinding: return the epoch that forgets as much as a model without the forget set would (Kurmanji et al., 2023).

The final model's error on held-out data with the labels of D_f stands in for that of a model never trained on D_f.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from gradpivot.errors import GradPivotError
from gradpivot.runtime import derive, evaluating, isolated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Classification

__all__ = ["Rewinding"]

_BATCH_SIZE = 256


class Rewinding:
    """The models at the ends of epochs, and the choice among them. Part of the checkpoint.

    Args:
        model: The original model.
        task: Runs the model on a batch.
        split: Provides D_f and the validation data; the test data are not used.
        loop: Loads the samples.

    Raises:
        GradPivotError: If the validation data have no sample with a label of D_f.
    """

    def __init__(self, model: nn.Module, task: Classification, split: ForgetSplit, loop: Loop) -> None:
        self._task, self._split, self._loop = task, split, loop
        self._kept: list[dict[str, Any]] = []
        self._held_out = np.arange(len(split.validation))
        forgotten, _ = self._labels_and_errors(model, split.train, split.forget_indices)
        held, _ = self._labels_and_errors(model, split.validation, self._held_out)
        self._weights = _matching_weights(held, forgotten)

    def keep(self, model: nn.Module) -> None:
        """Remember the model at the end of an epoch."""
        self._kept.append(copy.deepcopy(model.state_dict()))

    def rewind(self, model: nn.Module, recalibrate: Callable[[], None]) -> None:
        """Load the model with the nearest error; of several, the last, whose retain set is repaired most.

        Args:
            model: The final model; changed in place.
            recalibrate: Recomputes BatchNorm statistics, if the method does that.
        """
        ends = [*self._kept, copy.deepcopy(model.state_dict())]
        # The first process decides, so that rounding cannot make the processes disagree.
        chosen, error, wanted = self._loop.replicas.from_first(lambda: self._nearest(model, ends, recalibrate))
        model.load_state_dict(ends[chosen])
        recalibrate()
        where = f"rewound to the end of epoch {chosen + 1}" if chosen < len(ends) - 1 else "not rewound"
        self._loop.note(
            f"{where}: the error on the forget set is {100 * error:.1f} %, that on held-out data with the same labels "
            f"{100 * wanted:.1f} %"
        )

    def state_dict(self) -> dict[str, Any]:
        """The models kept so far."""
        return {"kept": self._kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self._kept = list(state["kept"])

    def _nearest(
        self, model: nn.Module, ends: list[dict[str, Any]], recalibrate: Callable[[], None]
    ) -> tuple[int, float, float]:
        """Index of the nearest end, its error on D_f, and the final model's error on held-out data."""
        wanted = self.held_out_error(model)
        errors = []
        for end in ends:
            model.load_state_dict(end)
            recalibrate()
            errors.append(self.forget_error(model))
        gaps = [abs(error - wanted) for error in errors]
        chosen = max(i for i, gap in enumerate(gaps) if gap == min(gaps))
        return chosen, errors[chosen], wanted

    def forget_error(self, model: nn.Module) -> float:
        """Fraction of D_f that the model misclassifies."""
        return float(self._labels_and_errors(model, self._split.train, self._split.forget_indices)[1].mean())

    def held_out_error(self, model: nn.Module) -> float:
        """Fraction of the validation data that the model misclassifies, weighted to the labels of D_f."""
        _, wrong = self._labels_and_errors(model, self._split.validation, self._held_out)
        return float(self._weights @ wrong)

    @torch.no_grad()
    def _labels_and_errors(
        self, model: nn.Module, data: Any, indices: np.ndarray
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Label of each sample, and 1 where the model is wrong."""
        labels, wrong = [], []
        with isolated(derive(self._loop.seed, "rewind")), evaluating(model):
            for _, batch in self._loop.eval_batches(model, data, indices, _BATCH_SIZE):
                logits, targets = self._task.logits(model, batch)
                labels.append(targets.cpu().numpy())
                wrong.append((logits.argmax(1) != targets).cpu().numpy())
        return np.concatenate(labels), np.concatenate(wrong).astype(np.float64)


def _matching_weights(held: NDArray[np.int64], forgotten: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights of held-out samples, with a sum of 1, that give each label its share of D_f."""
    classes, index, counts = np.unique(held, return_inverse=True, return_counts=True)
    shares = np.array([np.mean(forgotten == label) for label in classes])
    weights: NDArray[np.float64] = (shares / counts)[index]
    if weights.sum() == 0:
        raise GradPivotError(
            "rewind needs held-out samples with the labels of the forget set, but the validation data have none; add "
            "some, or set rewind=False"
        )
    weights /= weights.sum()
    return weights
