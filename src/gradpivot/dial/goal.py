r"""What a run by degree is steered to: what counts as forgotten, and how much of it γ = 1 asks for.

A *class* is forgotten when nobody names it: the degree of a sample is whether it is misclassified, and γ = 1 asks for
all of them.

*Records* are forgotten when they look like data that the model has never seen. A retrained model recognises most of
them, too: to misclassify them all would destroy what is kept, and show an attacker which they were. The degree of a
sample is then the doubt 1 − p_θ(y|x), and γ = 1 asks for as much of it as the original has of never-seen data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch

from gradpivot.data import shuffled
from gradpivot.errors import GradPivotError
from gradpivot.runtime import derive, isolated
from gradpivot.tasks import degree_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import DoubtingTask, Forgetting, GradualTask, Objective

__all__ = ["Goal", "Misclassified", "Unseen"]

LONG_WAY = 0.2
"""A run to this much more doubt may change the losses as one that forgets a class may; one that goes two points has to
be ten times as careful."""
LEAST_WAY = 1e-4
"""Records that are in this much less doubt than never-seen data look like them."""
LOOKED_AT = 10_000
"""Never-seen samples that are looked at, once in a run: they are often but a point more in doubt than others."""
_BATCH = 256


class Goal(Protocol):
    """What a run is steered by."""

    counts: ClassVar[bool]
    """Whether a degree is a share of samples, which comes in steps of one."""

    @property
    def task(self) -> GradualTask:
        """Runs the model on a batch."""
        ...

    @property
    def objective(self) -> Objective:
        """The forgetting loss, as the task means it."""
        ...

    @property
    def most(self) -> float:
        """The degree that γ = 1 asks for."""
        ...

    def forgetting(self, model: nn.Module, batch: Any) -> Forgetting:
        """L_f and the degree of each sample, from one forward pass."""
        ...

    def degree(self, model: nn.Module, batch: Any) -> Tensor:
        """The degree of each sample, without the loss where that saves something."""
        ...

    def share(self, start: float) -> float:
        """How much of what a run may change in the losses one that begins at a degree of ``start`` may, in (0, 1]."""
        ...

    def is_reached(self, start: float) -> bool:
        """Whether there is nothing to forget, at a degree of ``start`` before the run."""
        ...


@dataclass(frozen=True)
class Misclassified:
    """All of the forget set is misclassified, or whatever else the task calls forgotten.

    Attributes:
        task: Runs the model on a batch.
        objective: The forgetting loss, as the task means it.
    """

    task: GradualTask
    objective: Objective
    counts: ClassVar[bool] = True
    most: ClassVar[float] = 1.0

    def forgetting(self, model: nn.Module, batch: Any) -> Forgetting:
        """L_f and whether each sample is forgotten."""
        return self.task.forgetting(model, batch, self.objective)

    def degree(self, model: nn.Module, batch: Any) -> Tensor:
        """Whether each sample is forgotten."""
        return degree_of(self.task, model, batch, self.objective)

    def share(self, start: float) -> float:
        """All of it."""
        return 1.0

    def is_reached(self, start: float) -> bool:
        """A run holds what is forgotten already, and repairs."""
        return False


@dataclass(frozen=True)
class Unseen:
    """The forget set is in as much doubt as data that the model has never seen.

    Attributes:
        task: Runs the model on a batch.
        objective: The forgetting loss, as the task means it.
        most: The mean doubt 1 − p_θ(y|x) of the original about never-seen data.
    """

    task: DoubtingTask
    objective: Objective
    most: float
    counts: ClassVar[bool] = False

    @classmethod
    def of(
        cls, model: nn.Module, task: DoubtingTask, objective: Objective, split: ForgetSplit, loop: Loop
    ) -> Unseen:
        """Look at the validation data, once.

        Args:
            model: The original.
            task: Runs it on a batch.
            objective: The forgetting loss, as the task means it.
            split: Has the validation data; the test data are not looked at.
            loop: Gives the samples.

        Raises:
            GradPivotError: if there are none.
        """
        data = split.validation
        if data is None:
            raise GradPivotError(
                "forgotten records should look like data never seen, and the split has none to compare with: give "
                "validation data, or half of the test data by split.with_validation()"
            )
        if len(data) == 0:
            raise GradPivotError("the validation data are empty; give some that the model has never seen")
        looked_at = shuffled(np.arange(len(data)), loop.seed, "unseen")[:LOOKED_AT]

        @torch.no_grad()
        def mean_doubt() -> float:
            with isolated(derive(loop.seed, "unseen")):
                doubts = [
                    task.doubting(model, batch, objective).degree.double().sum().item()
                    for _, batch in loop.pass_over(model, data, looked_at, _BATCH)
                ]
            mean = float(np.sum(doubts) / len(looked_at))
            if not math.isfinite(mean):
                raise GradPivotError(
                    "the model's outputs on the validation data are not finite; look for NaN in these data"
                )
            return mean

        return cls(task, objective, loop.replicas.from_first(mean_doubt))

    def forgetting(self, model: nn.Module, batch: Any) -> Forgetting:
        """L_f and the doubt about each sample."""
        return self.task.doubting(model, batch, self.objective)

    def degree(self, model: nn.Module, batch: Any) -> Tensor:
        """The doubt about each sample."""
        return self.forgetting(model, batch).degree

    def share(self, start: float) -> float:
        """Less than all of it where the way is short."""
        return min(1.0, max(self.most - start, LEAST_WAY) / LONG_WAY)

    def is_reached(self, start: float) -> bool:
        """Records that look unseen need not be changed."""
        return self.most - start <= LEAST_WAY
