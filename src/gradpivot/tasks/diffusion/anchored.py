"""What the dial steers on a diffusion model: distances from predictions of the frozen original.

The forget loss is the distance from the original's prediction for another label, its *anchor*; the retain loss is that
from its own prediction. Both are bounded below by 0, and compare two predictions for the same noise, which varies far
less than the denoising error. After Kumari et al., "Ablating Concepts in Text-to-Image Diffusion Models" (ICCV 2023).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.errors import GradPivotError
from gradpivot.tasks.task import Forgetting, GradualTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.tasks.diffusion.denoising import Diffusion, Noisy
    from gradpivot.tasks.objectives import Objective

__all__ = ["AnchoredDiffusion"]


@dataclass(frozen=True, kw_only=True)
class AnchoredDiffusion(GradualTask):
    """A diffusion task relative to a frozen original.

    Attributes:
        task: The task; it prepares batches and runs models.
        original: The original model.
        forgotten: The classes that are forgotten, now or before; they are nobody's anchor.
    """

    predicts: ClassVar[bool] = False

    task: Diffusion
    original: nn.Module
    forgotten: Collection[int] = ()

    @classmethod
    def of(cls, task: Diffusion, original: nn.Module, forgotten: Collection[int]) -> AnchoredDiffusion:
        """Anchor a task to a copy of the model."""
        import copy

        frozen = copy.deepcopy(original).eval().requires_grad_(False)
        return cls(task=task, original=frozen, forgotten=tuple(forgotten))

    @property
    def loss_unit(self) -> float:
        """That of the task."""
        return self.task.loss_unit

    @property
    def retain_budget(self) -> float:
        """That of the task."""
        return self.task.retain_budget

    @property
    def search_samples(self) -> int:
        """Fewer than of other tasks, because equal noise leaves little spread and each pass is expensive."""
        return 512

    def counterpart(self, objective: Objective) -> Objective:
        """That of the task."""
        return self.task.counterpart(objective)

    def target_of(self, sample: Any) -> Any:
        """The label of a sample."""
        return self.task.target_of(sample)

    def retain_loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Mean squared distance per pixel from the original's prediction.

        With label dropout in eval mode too, because guidance also needs the prediction without a label.
        """
        from torch.nn.functional import mse_loss

        images, labels = self.task.clean(model, batch)
        noisy, labels = self.task.noised(images), self.task.dropped(labels)
        (target,) = self.task.predictions(self.original, noisy, labels)
        return mse_loss(self.task.predicted(model, noisy, labels), target)

    def forget_loss(self, model: nn.Module, batch: Any, objective: Objective) -> Tensor:
        """Mean squared distance per pixel from the original's prediction for the anchor's label.

        The anchor is the next class that is not forgotten (``other_class``), or no class (``no_class``).
        """
        images, labels = self.task.clean(model, batch)
        anchors, noisy = self.anchors(labels, objective), self.task.noised(images)
        (target,) = self.task.predictions(self.original, noisy, anchors)
        return _distance(self.task.predicted(model, noisy, labels), target).mean()

    def forgetting(self, model: nn.Module, batch: Any, objective: Objective) -> Forgetting:
        """:meth:`forget_loss` and the degree of forgetting, 1 − loss/(the original's loss).

        Both losses are of the same noise and timesteps. The batch's mean degree is 0 for the original and 1 at the
        anchor; that of a sample may be below 0.
        """
        images, labels = self.task.clean(model, batch)
        noisy = self.task.noised(images)
        distances, degree = self._to_anchor(noisy, self.task.predicted(model, noisy, labels), labels, objective)
        return Forgetting(distances.mean(), degree)

    def anchors(self, labels: Tensor, objective: Objective) -> Tensor:
        """The label whose original prediction each label's moves to.

        Raises:
            GradPivotError: If the objective has no anchor, or every class is forgotten.
        """
        import torch

        name = self.counterpart(objective).name
        if name == "no_class":
            return torch.full_like(labels, self.task.no_class)
        if name != "other_class":
            raise GradPivotError(
                f"the objective {name} has no degree of forgetting for diffusion; use dial='angle' (other methods: no "
                f"gamma), or the objective other_class or no_class"
            )
        others = [name for name in range(self.task.classes) if name not in self.forgotten]
        if self.task.classes < 2 or not others:
            raise GradPivotError("the objective other_class needs a class that is not forgotten; use no_class")
        following = [
            min(others, key=lambda other: (other - name - 1) % self.task.classes) for name in range(self.task.classes)
        ]
        return torch.tensor(following, device=labels.device)[labels]

    def _to_anchor(
        self, noisy: Noisy, predicted: Tensor, labels: Tensor, objective: Objective
    ) -> tuple[Tensor, Tensor]:
        """Distance of each prediction from its anchor, and the degrees."""
        before, target = self.task.predictions(self.original, noisy, labels, self.anchors(labels, objective))
        distances, way = _distance(predicted, target), _distance(before, target).double().mean()
        if way == 0:
            raise GradPivotError(
                "the original predicts the same for a label and its anchor, so there is nothing to forget"
            )
        return distances, 1 - distances.detach().double() / way


def _distance(predicted: Tensor, target: Tensor) -> Tensor:
    """Mean squared distance per pixel, for each sample."""
    return (predicted - target).square().flatten(1).mean(1)
