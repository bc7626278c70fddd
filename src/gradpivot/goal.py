r"""What a run by degree is steered to: what counts as forgotten, and how much of it γ = 1 asks for.

A *class* is forgotten when nobody names it: the degree of a sample is whether it is misclassified, and γ = 1 asks for
all of them.

*Records* are forgotten when they look like data that the model has never seen. A retrained model recognises most of
them, too: to misclassify them all would destroy what is kept, and show an attacker which they were. The degree of a
sample is then the doubt 1 − p_θ(y|x), and γ = 1 asks for as much of it as the original has of never-seen data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch

from gradpivot.data.order import shuffled
from gradpivot.errors import GradPivotError
from gradpivot.randomness import derive, isolated
from gradpivot.steering import LEAST_WAY
from gradpivot.tasks.task import degree_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.data.split import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.objectives import Objective
    from gradpivot.tasks.task import DoubtingTask, Forgetting, GradualTask

__all__ = ["Goal", "Misclassified", "Unseen"]

NAT = 0.2
"""What a nat is to a class, this share of the way in doubt is to records: a run that goes two points has to be as much
more careful with both losses."""
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

    def unit(self, start: float) -> float:
        """What a nat is in the losses of a run that begins at a degree of ``start``."""
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

    def unit(self, start: float) -> float:
        """The task's own."""
        return float(getattr(self.task, "loss_unit", 1.0))


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
        looked_at = shuffled(np.arange(len(data)), loop.seed, "unseen")[:LOOKED_AT]

        @torch.no_grad()
        def mean_doubt() -> float:
            with isolated(derive(loop.seed, "unseen")):
                doubts = [
                    task.doubting(model, batch, objective).degree.double().sum().item()
                    for _, batch in loop.pass_over(model, data, looked_at, _BATCH)
                ]
            return float(np.sum(doubts) / len(looked_at))

        return cls(task, objective, loop.replicas.from_first(mean_doubt))

    def forgetting(self, model: nn.Module, batch: Any) -> Forgetting:
        """L_f and the doubt about each sample."""
        return self.task.doubting(model, batch, self.objective)

    def degree(self, model: nn.Module, batch: Any) -> Tensor:
        """The doubt about each sample."""
        return self.forgetting(model, batch).degree

    def unit(self, start: float) -> float:
        """The task's own, or less where the way is short."""
        return float(getattr(self.task, "loss_unit", 1.0)) * min(1.0, max(self.most - start, LEAST_WAY) / NAT)
