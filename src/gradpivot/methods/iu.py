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
"""The largest matrix of single-sample gradients that ``woodbury`` holds: 2 GiB."""


@dataclass(frozen=True, kw_only=True)
class IU(Method):
    """Adds α·H⁻¹v with v = (n_f/N)(ḡ_f − ḡ_r): to first order, what leaving D_f out of training would change.

    ḡ_f and ḡ_r are the mean gradients of the cross-entropy over D_f and D_r, and H is the damped empirical Fisher
    matrix δ·I + (1/m) Σ gᵢgᵢᵀ of m samples of D_r.

    Attributes:
        alpha: α, the length of the step; 1 is the influence function's own.
        damping: δ. The larger, the more the step is plain gradient ascent.
        samples: m, how many samples of D_r make H; all of them if there are fewer.
        solver: ``woodbury`` (exact, holds m single-sample gradients), ``cg`` (conjugate gradients, holds none),
            ``auto`` (the former up to 2 GiB, the latter beyond) or ``shortcut`` (the literature's common code: v
            less a multiple of one sample's gradient; takes no damping).
        tolerance: What ``cg`` may leave of v, relative to its length.
        iterations: The most that ``cg`` makes.
        batch_size: Samples at a time; it changes memory and rounding, nothing else.
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
        self._take_plain_numbers()
        self._check("alpha", least=0)
        self._check("damping", above=0)
        self._check("tolerance", above=0, below=1)
        for name in ("samples", "iterations", "batch_size"):
            self._check(name, least=1, whole=True)
        self._check_choices()

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Both mean gradients, H⁻¹v, and one update."""
        from gradpivot.methods.parts.fisher import shaped_like

        task = Classification.required(task, self.title)
        gradients = loop.mean_gradients(
            model,
            split,
            self.batch_size,
            forget=partial(_cross_entropy, task, model, -1),
            retain=partial(_cross_entropy, task, model, 1),
        )
        share = len(split.forget_indices) / len(split.train)
        update = self.alpha * self._solve(self._samples(model, task, split, loop), _influence(gradients, share))
        trainable = [p for p in model.parameters() if p.requires_grad]
        loop.move(shaped_like(trainable, update), gradients, Weights(self.alpha * share, self.alpha * share))

    def _samples(self, model: nn.Module, task: Classification, split: ForgetSplit, loop: Loop) -> SampleGradients:
        import numpy as np

        from gradpivot.data import shuffled
        from gradpivot.methods.parts.fisher import SampleGradients

        # In the order of the data: if they are all of D_r the seed decides nothing, not even the rounding.
        chosen = np.sort(shuffled(split.retain_indices, loop.seed, "fisher")[: self.samples])
        batches = loop.pass_over(model, split.train, chosen, self.batch_size)
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
                f"IU: {m} gradients of {p} weights take {samples.bytes / 2**30:.1f} GiB, and woodbury holds at most "
                f"{WOODBURY_BYTES / 2**30:g}; use solver='cg', which holds none, or fewer samples"
            )
        return solve_woodbury(samples.dense(), vector, self.damping)


def _cross_entropy(task: Classification, model: nn.Module, sign: int, batch: Any) -> Tensor:
    """±CE itself, which H is made of too, whatever losses the task has."""
    from torch.nn.functional import cross_entropy

    return sign * cross_entropy(*task.logits(model, batch))


def _influence(gradients: Gradients, share: float) -> Tensor:
    """The vector v = (n_f/N)(ḡ_f − ḡ_r); the forget gradient is that of −CE, so that v = −(n_f/N)(f + r)."""
    from gradpivot.methods.parts.fisher import flat

    return -share * (flat(gradients.forget) + flat(gradients.retain))
