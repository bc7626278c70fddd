"""IU: influence unlearning, one Newton-like step (Izzo et al., 2021; Koh & Liang, 2017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gradpivot.errors import GradPivotError
from gradpivot.geometry import Weights
from gradpivot.methods.method import Method
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Gradients, Loop
    from gradpivot.methods.parts.fisher import SampleGradients
    from gradpivot.tasks import Task

__all__ = ["IU"]

WOODBURY_BYTES = 2 << 30
"""Memory limit of the ``woodbury`` solver's matrix of per-sample gradients: 2 GiB."""


@dataclass(frozen=True, kw_only=True)
class IU(Method):
    """Influence unlearning: one Newton step that approximates retraining without the forget set (Izzo et al., 2021).

    Adds α·H⁻¹v with v = (n_f/N)(ḡ_f − ḡ_r). ḡ_f and ḡ_r are the mean cross-entropy gradients over D_f and D_r; H is
    the damped empirical Fisher matrix δ·I + (1/m) Σ gᵢgᵢᵀ of m samples of D_r.

    Attributes:
        alpha: Step length; 1 is the influence function.
        damping: Damping δ of the Fisher matrix. Larger values approach plain gradient ascent.
        samples: Maximum number of retain samples in the Fisher matrix.
        solver: woodbury (exact, stores all per-sample gradients), cg (iterative, stores none), auto (woodbury up to 2
            GiB, then cg) or shortcut (the approximation in common code, without damping).
        tolerance: Relative residual at which cg stops.
        iterations: Maximum number of cg iterations.
        batch_size: Batch size; affects memory and rounding only.
    """

    name: ClassVar[str] = "iu"
    title: ClassVar[str] = "IU"
    knob: ClassVar[str | None] = "alpha"
    one_shot: ClassVar[bool] = True
    paper: ClassVar[Mapping[str, Any]] = {"alpha": 1.0, "solver": "shortcut"}
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {"alpha": tuple(float(a) for a in range(1, 21))}

    alpha: float = 1.0
    damping: float = 1e-2
    samples: int = 1000
    solver: Literal["auto", "woodbury", "cg", "shortcut"] = "auto"
    tolerance: float = 1e-4
    iterations: int = 500
    batch_size: int = 256

    def __post_init__(self) -> None:
        self._coerce_scalars()
        self._check("alpha", ge=0)
        self._check("damping", gt=0)
        self._check("tolerance", gt=0, lt=1)
        for name in ("samples", "iterations", "batch_size"):
            self._check(name, ge=1, integer=True)
        self._check_choices()

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Add α·H⁻¹v to the weights."""
        from gradpivot.methods.parts.fisher import unflatten_like

        task = Classification.require(task, self.title)
        gradients = loop.mean_gradients(
            model,
            split,
            self.batch_size,
            forget=partial(_cross_entropy, task, model, -1),
            retain=partial(_cross_entropy, task, model, 1),
        )
        share = len(split.forget_indices) / (len(split.forget_indices) + len(split.retain_indices))
        update = self.alpha * self._solve(self._samples(model, task, split, loop), _influence(gradients, share))
        trainable = [p for p in model.parameters() if p.requires_grad]
        loop.move(unflatten_like(trainable, update), gradients, Weights(self.alpha * share, self.alpha * share))

    def _samples(self, model: nn.Module, task: Classification, split: ForgetSplit, loop: Loop) -> SampleGradients:
        import numpy as np

        from gradpivot.data import shuffled
        from gradpivot.methods.parts.fisher import SampleGradients

        # Sorted, so that with all of D_r the result does not depend on the seed, not even in rounding.
        chosen = np.sort(shuffled(split.retain_indices, loop.seed, "fisher")[: self.samples])
        batches = loop.eval_batches(model, split.train, chosen, self.batch_size)
        return SampleGradients(model, task, [batch for _, batch in batches])

    def _solve(self, samples: SampleGradients, vector: Tensor) -> Tensor:
        from gradpivot.methods.parts.fisher import solve_cg, solve_woodbury, subtract_shortcut

        if self.solver == "shortcut":
            return subtract_shortcut(samples, vector)
        fits = samples.bytes <= WOODBURY_BYTES
        if self.solver == "cg" or (self.solver == "auto" and not fits):
            return solve_cg(samples, vector, self.damping, tolerance=self.tolerance, iterations=self.iterations)
        if not fits:
            m, p = samples.shape
            raise GradPivotError(
                f"IU: {m} gradients of {p} weights take {samples.bytes / 2**30:.1f} GiB, but the limit of woodbury is "
                f"{WOODBURY_BYTES / 2**30:g} GiB; use solver='cg' or fewer samples"
            )
        return solve_woodbury(samples.dense(), vector, self.damping)


def _cross_entropy(task: Classification, model: nn.Module, sign: int, batch: Any) -> Tensor:
    """±CE, also for a task with its own losses: H is built from CE too."""
    from torch.nn.functional import cross_entropy

    return sign * cross_entropy(*task.logits(model, batch))


def _influence(gradients: Gradients, share: float) -> Tensor:
    """The vector v = (n_f/N)(ḡ_f − ḡ_r), which is −(n_f/N)(f + r) because f is the gradient of −CE."""
    from gradpivot.methods.parts.fisher import flatten

    return -share * (flatten(gradients.forget) + flatten(gradients.retain))
