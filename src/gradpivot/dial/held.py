"""Keep the predictions on records that earlier requests deleted.

To leave these records out of every batch is not enough: repairing L_r also teaches records like the retained ones, and
half of what an earlier request forgot comes back. The run therefore adds to L_r how far the predictions on them have
moved from the original's, KL(p_original ‖ p). Labels play no part, so nothing can be learned again from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
from torch.nn.functional import kl_div

from gradpivot.data import shuffled
from gradpivot.runtime import derive, evaluating, isolated
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    from typing import Any

    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.dial.settings import DialSettings
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["Held"]

_LOWEST = -100.0
"""Stands for log 0, of a class that the model masks: 0 · ∞ is NaN."""


class Held:
    """The original's predictions on already forgotten records.

    Args:
        model: The original model.
        task: Runs the model on a batch.
        split: The data, with already forgotten records.
        loop: Loads the samples.
        settings: The dial's constants.
    """

    def __init__(
        self, model: nn.Module, task: Classification, split: ForgetSplit, loop: Loop, settings: DialSettings
    ) -> None:
        self._model, self._task = model, task
        chosen = shuffled(split.already_forgotten, loop.seed, "held")[: settings.search_samples]
        with torch.no_grad(), isolated(derive(loop.seed, "held")):
            self._batches = [
                (batch, self._log_probabilities(batch))
                for _, batch in loop.eval_batches(model, split.train, chosen, settings.held_batch)
            ]

    @classmethod
    def of(cls, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop, settings: DialSettings) -> Self | None:
        """None if there is nothing to hold, or the model predicts no classes."""
        if len(split.already_forgotten) == 0 or not isinstance(task, Classification):
            return None
        return cls(model, task, split, loop, settings)

    def loss(self, step: int) -> Tensor:
        """Mean KL(p_original ‖ p) in nats over the batch of this step; in eval mode, as the model will be used."""
        batch, before = self._batches[step % len(self._batches)]
        with evaluating(self._model):
            return kl_div(self._log_probabilities(batch), before, reduction="batchmean", log_target=True)

    def _log_probabilities(self, batch: Any) -> Tensor:
        return self._task.logits(self._model, batch)[0].log_softmax(1).clamp(min=_LOWEST)
