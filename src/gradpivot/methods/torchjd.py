"""Methods with TorchJD's weightings: MGDA, CAGrad, Aligned-MTL, UPGrad, DualProj and IMTL-G.

All are stateless functions of the 2×2 Gram matrix, so a resumed run equals the uninterrupted one.

TorchJD guards its solvers with absolute constants (1e-4 on squared norms), which disable the rule for small gradients:
at ‖f‖, ‖r‖ < 7e-3 its UPGrad is the mean and its CAGrad does not move. We therefore normalise the Gram matrix to unit
trace first. The rules are scale-invariant, so nothing else changes.

Reference:
    Quinton & Rey (2024), "Jacobian Descent for Multi-Objective Optimization", arXiv:2406.16232.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from gradpivot.errors import GradPivotError, install_command
from gradpivot.geometry import Case, Gram, Weighting, Weights, case_of
from gradpivot.methods.weighted import LossWeightedDescent

if TYPE_CHECKING:
    from torch import Tensor

    Rule = Callable[[Tensor], Tensor]

__all__ = ["IMTLG", "MGDA", "AlignedMTL", "CAGrad", "DualProj", "TorchJDDescent", "UPGrad"]


@dataclass(frozen=True, kw_only=True)
class TorchJDDescent(LossWeightedDescent):
    """Descent by a TorchJD weighting (extra ``torchjd``)."""

    extra: ClassVar[str] = "torchjd"
    """The extra that installs its dependencies."""

    @abstractmethod
    def torchjd(self) -> Rule:
        """TorchJD's weighting, from a 2×2 Gram matrix to two weights."""

    def rule(self) -> Weighting:
        """TorchJD's weighting of the normalised Gram matrix.

        Raises:
            GradPivotError: If TorchJD or one of its solvers is not installed.
        """
        with self._imports():
            return at_unit_scale(self.torchjd())

    def check_installed(self) -> None:
        """Raise if TorchJD or one of its solvers is missing."""
        self.rule()

    @contextmanager
    def _imports(self) -> Iterator[None]:
        try:
            yield
        except ImportError as error:
            raise GradPivotError(f"{self.title} needs TorchJD ({error}): {install_command(self.extra)}") from None


@dataclass(frozen=True, kw_only=True)
class MGDA(TorchJDDescent):
    """Minimum-norm convex combination of the two gradients (Désidéri, 2012; Sener & Koltun, 2018)."""

    name: ClassVar[str] = "mgda"
    title: ClassVar[str] = "MGDA"

    def torchjd(self) -> Rule:
        """The (a, b) that minimise ‖a·f + b·r‖ over a + b = 1, a, b ≥ 0."""
        from torchjd.aggregation import MGDAWeighting

        return MGDAWeighting()


@dataclass(frozen=True, kw_only=True)
class CAGrad(TorchJDDescent):
    """Conflict-averse descent: maximise the worse loss improvement near the mean gradient (Liu et al., 2021).

    Its solver needs the extra ``cagrad``.

    Attributes:
        c: Radius of the search around the mean gradient, relative to its norm. 0 is the mean; 1 or more is
            conflict-free.
    """

    name: ClassVar[str] = "cagrad"
    title: ClassVar[str] = "CAGrad"
    extra: ClassVar[str] = "cagrad"

    c: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("c", ge=0)

    def torchjd(self) -> Rule:
        """The d with ‖d − g₀‖ ≤ c‖g₀‖, g₀ = (f + r)/2, that maximises min(⟨f,d⟩, ⟨r,d⟩)."""
        from torchjd.aggregation import CAGradWeighting

        # A combination with a smaller norm, relative to ‖f‖ and ‖r‖, is solver error: treat as Pareto-stationary.
        return CAGradWeighting(c=self.c, norm_eps=1e-6)


@dataclass(frozen=True, kw_only=True)
class AlignedMTL(TorchJDDescent):
    """Mean of the two gradients after aligning their principal components (Senushkin et al., 2023).

    Attributes:
        scale_mode: Singular value that sets the norm: min, median or rmse.
    """

    name: ClassVar[str] = "aligned_mtl"
    title: ClassVar[str] = "Aligned-MTL"

    scale_mode: Literal["min", "median", "rmse"] = "min"

    def torchjd(self) -> Rule:
        """½ σ G^(−½) (1, 1), with σ² the smallest eigenvalue of G."""
        from torchjd.aggregation import AlignedMTLWeighting

        return AlignedMTLWeighting(scale_mode=self.scale_mode)


@dataclass(frozen=True, kw_only=True)
class UPGrad(TorchJDDescent):
    """Mean of the two gradients, each projected onto the conflict-free cone (Quinton & Rey, 2024)."""

    name: ClassVar[str] = "upgrad"
    title: ClassVar[str] = "UPGrad"

    def torchjd(self) -> Rule:
        """The mean of the two projections; with two losses equal to PCGrad's mean."""
        from torchjd.aggregation import UPGradWeighting

        return _projecting(UPGradWeighting)


@dataclass(frozen=True, kw_only=True)
class DualProj(TorchJDDescent):
    """Projection of the mean gradient onto the conflict-free cone (Lopez-Paz & Ranzato, 2017)."""

    name: ClassVar[str] = "dualproj"
    title: ClassVar[str] = "DualProj"

    def torchjd(self) -> Rule:
        """The projection of (f + r)/2; with two losses half of DCGD's ``proj``."""
        from torchjd.aggregation import DualProjWeighting

        return _projecting(DualProjWeighting)


@dataclass(frozen=True, kw_only=True)
class IMTLG(TorchJDDescent):
    """Impartial combination, with equal projections onto both gradients (Liu et al., 2021).

    w_f and w_r only change its norm; the direction is always f/‖f‖ + r/‖r‖.
    """

    name: ClassVar[str] = "imtl_g"
    title: ClassVar[str] = "IMTL-G"

    def torchjd(self) -> Rule:
        """(‖r‖, ‖f‖) / (‖f‖ + ‖r‖)."""
        from torchjd.aggregation import IMTLGWeighting

        return IMTLGWeighting()


def at_unit_scale(rule: Rule) -> Weighting:
    """Apply a scale-invariant rule to G/trace(G); opposed or vanishing gradients get zero weights."""
    from gradpivot.geometry import from_torchjd

    weighting = from_torchjd(rule)

    def weigh(gram: Gram, /) -> Weights:
        if case_of(gram) in (Case.OPPOSED, Case.FLAT):
            return Weights(0.0, 0.0)
        size = gram.ff + gram.rr
        return weighting(Gram(gram.ff / size, gram.rr / size, gram.fr / size))

    return weigh


def _projecting(kind: Callable[..., Rule]) -> Rule:
    """A projection onto the dual cone without TorchJD's ε on the diagonal.

    The ε is meant for singular matrices, but swamps a gradient a hundred times shorter than the other. Conflicting
    gradients have a regular matrix, because opposed ones are handled earlier; otherwise ε has no effect.
    """
    from torchjd.linalg import QuadprogProjector

    exact, guarded = kind(projector=QuadprogProjector(norm_eps=0.0, reg_eps=0.0)), kind()
    return lambda gramian: (exact if gramian[0, 1] < 0 else guarded)(gramian)
