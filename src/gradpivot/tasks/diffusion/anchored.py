"""What the dial steers on a diffusion model: distances from predictions of the frozen original.

The forget loss is the distance from the original's prediction for another label, its *anchor*; the retain loss is that
from its own prediction. Both are bounded below by 0, and compare two predictions for the same noise, which varies far
less than the denoising error. After Kumari et al., "Ablating Concepts in Text-to-Image Diffusion Models" (ICCV 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from gradpivot.errors import GradPivotError
from gradpivot.runtime import evaluating
from gradpivot.tasks.task import Forgetting, GradualTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.tasks.diffusion.denoising import Diffusion, Noisy
    from gradpivot.tasks.objectives import Objective

__all__ = ["AnchoredDiffusion"]

_REMEMBERED = 8
"""Predictions of the original that are kept: the checks of a step and the line search ask for the same ones again."""

_STEEPNESS = 3
"""Exponent of the degree. 2 would leave no recognisable sample above γ = 0.5, 4 nearly all of them below 0.6."""


class _Known(NamedTuple):
    """Predictions of the original."""

    asked: tuple[Tensor, ...]
    """The noised batch and the labels."""
    predictions: tuple[Tensor, ...]
    """One for each list of labels."""


@dataclass(frozen=True, kw_only=True)
class AnchoredDiffusion(GradualTask):
    """A diffusion task relative to a frozen original.

    Attributes:
        task: The task; it prepares batches and runs models.
        original: The original model.
        classes: The classes that the run forgets; none if it forgets records.
        forgotten: The classes that are forgotten, now or before; they are nobody's anchor.
    """

    predicts: ClassVar[bool] = False

    task: Diffusion
    original: nn.Module
    classes: Collection[int] = ()
    forgotten: Collection[int] = ()
    _known: list[_Known] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls, task: Diffusion, original: nn.Module, classes: Collection[int], before: Collection[int] = ()
    ) -> AnchoredDiffusion:
        """Anchor a task to a copy of the model; ``before`` are classes that earlier requests deleted."""
        import copy

        frozen = copy.deepcopy(original).eval().requires_grad_(False)
        return cls(task=task, original=frozen, classes=tuple(classes), forgotten=(*classes, *before))

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
        (target,) = self._originals(noisy, labels)
        return mse_loss(self._predicted(model, noisy, labels), target)

    def forget_loss(self, model: nn.Module, batch: Any, objective: Objective) -> Tensor:
        """Mean squared distance per pixel from the original's prediction for the anchor's label.

        The anchor is the next class that is not forgotten (``other_class``), or no class (``no_class``).
        """
        from torch.nn.functional import mse_loss

        images, labels = self.task.clean(model, batch)
        noisy = self.task.noised(images)
        _, target = self._originals(noisy, labels, self.anchors(labels, objective))
        return mse_loss(self._predicted(model, noisy, labels), target)

    def forgetting(self, model: nn.Module, batch: Any, objective: Objective) -> Forgetting:
        """:meth:`forget_loss` and the degree of forgetting, 1 − (D_a/(D_o + D_a))³.

        D_a is the forget loss, the distance from the anchor, and D_o that from the original's prediction for the label
        itself, both averaged over the batch: at low noise those of a sample are almost 0. The degree is 0 for the
        original, 1 at the anchor and 7/8 where both are as far away, which is about where guidance stops drawing the
        class. The exponent makes the share of recognised samples fall gradually with γ (mnist-ddpm, guidance 2). All
        samples of a batch have the same degree.
        """
        from torch.nn.functional import mse_loss

        images, labels = self.task.clean(model, batch)
        noisy = self.task.noised(images)
        before, target = self._originals(noisy, labels, self.anchors(labels, objective))
        if mse_loss(before, target) == 0:
            raise GradPivotError(
                "the original predicts the same for a label and its anchor, so there is nothing to forget"
            )
        predicted = self._predicted(model, noisy, labels)
        loss = mse_loss(predicted, target)
        left, moved = loss.detach().double(), mse_loss(predicted.detach(), before).double()
        return Forgetting(loss, (1 - (left / (left + moved)) ** _STEEPNESS).expand(len(labels)))

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

    def restriction(self, model: nn.Module, note: Callable[[str], None]) -> list[Tensor | None] | None:
        """The rows of the class embedding that belong to the forgotten classes, if only the label forgets."""
        import torch

        if self.task.forgets == "model" or not self.classes:
            return None
        embedding = getattr(model, "class_embedding", None)
        if not isinstance(embedding, torch.nn.Embedding) or not embedding.weight.requires_grad:
            note("all weights forget, because the model has no trainable nn.Embedding named class_embedding")
            return None
        rows = torch.zeros_like(embedding.weight, dtype=torch.bool)
        rows[list(self.classes)] = True
        return [
            rows if weight is embedding.weight else torch.zeros_like(weight, dtype=torch.bool)
            for weight in model.parameters()
            if weight.requires_grad
        ]

    def _predicted(self, model: nn.Module, noisy: Noisy, labels: Tensor) -> Tensor:
        """ε_θ in eval mode, as the original's: dropout would count as a distance from it."""
        with evaluating(model):
            return self.task.predicted(model, noisy, labels)

    def _originals(self, noisy: Noisy, *labels: Tensor) -> tuple[Tensor, ...]:
        """The original's predictions for one or more lists of labels; remembers the last ones."""
        import torch

        asked = (*noisy, *labels)
        for known in self._known:
            if len(known.asked) == len(asked) and all(map(torch.equal, known.asked, asked)):
                return known.predictions
        found = _Known(asked, self.task.predictions(self.original, noisy, *labels))
        self._known[:] = [found, *self._known[: _REMEMBERED - 1]]
        return found.predictions
