"""The methods whose weightings are TorchJD's: MGDA, CAGrad, Aligned-MTL, UPGrad, DualProj and IMTL-G.

One class each, and one line that says which weighting; the loop is :class:`WeightedDescent`'s. All are functions of the
2×2 Gram matrix and keep nothing from one step to the next, so that a resumed run is the uninterrupted one.

TorchJD guards its solvers with absolute constants (1e-4 on squared norms), which switch the rule off for small
gradients: at ‖f‖, ‖r‖ < 7e-3 its UPGrad is the mean and its CAGrad does not move. Here the Gram matrix is brought to a
scale of one before it goes in, which changes no result otherwise, because the rules do not depend on that scale.

Reference:
    Quinton & Rey (2024), "Jacobian Descent for Multi-Objective Optimization", arXiv:2406.16232.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from gradpivot.errors import GradPivotError, to_install
from gradpivot.geometry import Case, Gram, Weighting, Weights, case_of
from gradpivot.methods.weighted import LossWeightedDescent

if TYPE_CHECKING:
    from torch import Tensor

    Rule = Callable[[Tensor], Tensor]

__all__ = ["IMTLG", "MGDA", "AlignedMTL", "CAGrad", "DualProj", "TorchJDDescent", "UPGrad"]


@dataclass(frozen=True, kw_only=True)
class TorchJDDescent(LossWeightedDescent):
    """A descent by one of TorchJD's weightings of the Gram matrix (extra ``torchjd``)."""

    extra: ClassVar[str] = "torchjd"
    """Which of our extras installs what it needs."""

    @abstractmethod
    def torchjd(self) -> Rule:
        """TorchJD's weighting: a 2×2 Gram matrix to two weights."""

    def rule(self) -> Weighting:
        """TorchJD's rule at unit scale.

        Raises:
            GradPivotError: if TorchJD or a solver of its is not installed.
        """
        with self._imports():
            return at_unit_scale(self.torchjd())

    def check_installed(self) -> None:
        """Raise if TorchJD or a solver of its is missing."""
        self.rule()

    @contextmanager
    def _imports(self) -> Iterator[None]:
        try:
            yield
        except ImportError as error:
            raise GradPivotError(f"{self.title} needs TorchJD ({error}): {to_install(self.extra)}") from None


@dataclass(frozen=True, kw_only=True)
class MGDA(TorchJDDescent):
    """Follows the shortest convex combination of the two gradients (Désidéri, 2012; Sener & Koltun, 2018)."""

    name: ClassVar[str] = "mgda"
    title: ClassVar[str] = "MGDA"

    def torchjd(self) -> Rule:
        """The (a, b) that minimise ‖a·f + b·r‖ over a + b = 1, a, b ≥ 0."""
        from torchjd.aggregation import MGDAWeighting

        return MGDAWeighting()


@dataclass(frozen=True, kw_only=True)
class CAGrad(TorchJDDescent):
    """Helps the loss that is worse off, near the mean gradient (Liu et al., 2021).

    Its solver comes with an extra of its own, ``cagrad``.

    Attributes:
        c: Radius of the ball around the mean gradient, relative to its length. 0 is the mean itself, and 1 and more
            conflict with neither loss.
    """

    name: ClassVar[str] = "cagrad"
    title: ClassVar[str] = "CAGrad"
    extra: ClassVar[str] = "cagrad"

    c: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("c", least=0)

    def torchjd(self) -> Rule:
        """The d with ‖d − g₀‖ ≤ c‖g₀‖, g₀ = (f + r)/2, that maximises min(⟨f,d⟩, ⟨r,d⟩)."""
        from torchjd.aggregation import CAGradWeighting

        # A shorter combination, relative to ‖f‖ and ‖r‖, is lost in the solver's error: Pareto-stationary.
        return CAGradWeighting(c=self.c, norm_eps=1e-6)


@dataclass(frozen=True, kw_only=True)
class AlignedMTL(TorchJDDescent):
    """Makes the two gradients orthogonal and equally long before it averages them (Senushkin et al., 2023).

    Attributes:
        scale_mode: Which singular value gives the length: the ``min``, the ``median`` or the ``rmse``.
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
    """Projects each gradient on the cone that conflicts with neither, then averages (Quinton & Rey, 2024)."""

    name: ClassVar[str] = "upgrad"
    title: ClassVar[str] = "UPGrad"

    def torchjd(self) -> Rule:
        """The mean of the two projections; for two losses PCGrad's mean."""
        from torchjd.aggregation import UPGradWeighting

        return _projecting(UPGradWeighting)


@dataclass(frozen=True, kw_only=True)
class DualProj(TorchJDDescent):
    """Projects the mean gradient on the cone that conflicts with neither (Lopez-Paz & Ranzato, 2017)."""

    name: ClassVar[str] = "dualproj"
    title: ClassVar[str] = "DualProj"

    def torchjd(self) -> Rule:
        """The projection of (f + r)/2; for two losses half of DCGD's ``proj``."""
        from torchjd.aggregation import DualProjWeighting

        return _projecting(DualProjWeighting)


@dataclass(frozen=True, kw_only=True)
class IMTLG(TorchJDDescent):
    """Takes the combination with equal projections on both gradients (Liu et al., 2021).

    w_f and w_r change its length only; the direction is always that of f/‖f‖ + r/‖r‖.
    """

    name: ClassVar[str] = "imtl_g"
    title: ClassVar[str] = "IMTL-G"

    def torchjd(self) -> Rule:
        """(‖r‖, ‖f‖) / (‖f‖ + ‖r‖)."""
        from torchjd.aggregation import IMTLGWeighting

        return IMTLGWeighting()


def at_unit_scale(rule: Rule) -> Weighting:
    """A rule with w(s·G) = w(G), asked about G/trace(G); opposed or vanishing gradients make no step."""
    from gradpivot.geometry import from_torchjd

    answer = from_torchjd(rule)

    def weigh(gram: Gram, /) -> Weights:
        if case_of(gram) in (Case.OPPOSED, Case.FLAT):
            return Weights(0.0, 0.0)
        size = gram.ff + gram.rr
        return answer(Gram(gram.ff / size, gram.rr / size, gram.fr / size))

    return weigh


def _projecting(kind: Callable[..., Rule]) -> Rule:
    """A projection on the dual cone without TorchJD's ε on the diagonal.

    The ε is there for singular matrices, and drowns a gradient that is a hundred times shorter than the other. Under
    conflict the matrix is regular, since opposed gradients never come here; without, it changes nothing.
    """
    from torchjd.linalg import QuadprogProjector

    exact, guarded = kind(projector=QuadprogProjector(norm_eps=0.0, reg_eps=0.0)), kind()
    return lambda gramian: (exact if gramian[0, 1] < 0 else guarded)(gramian)
