r"""The ramp: feedback from the observed degree of forgetting to the intensity of the next step.

The target degree rises linearly over the first part of a run and is then constant. A run that lags raises the
intensity; one on target holds L_f and repairs L_r; one that overshoots undoes some forgetting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from gradpivot.dial.settings import DialSettings

__all__ = ["Ramp", "gamma_for", "target_degree"]


def target_degree(gamma: float) -> float:
    r"""The degree of forgetting that γ sets, as a fraction of the gap to "forgotten": sin(πγ/2).

    This is cos∠(g_γ, f) = sin(γφ) of the paper's pivot on orthogonal gradients (φ = π/2). It rises from 0 to 1, by at
    most 16 points per 0.1 of γ, and flattens at the end, as UA does.
    """
    return math.sin(math.pi * gamma / 2)


def gamma_for(degree: float) -> float:
    """The γ for a degree; the inverse of :func:`target_degree`."""
    return 2 / math.pi * math.asin(min(max(degree, 0.0), 1.0))


@dataclass
class Ramp:
    """Feedback from the degree of forgetting to the intensity of a step.

    Attributes:
        start: Degree before the run, in [0, 1].
        end: Target degree at the end of the run.
        retain_start: L_r before the run, over more than one batch.
        full: Degree at γ = 1.
        unit: One nat in the task's loss units.
        reversible: Whether ascending the objective lowers the degree again.
        settings: Constants.
        lag: Running mean of target minus observed degree, as a fraction of the gap from start to full.
        evidence: Total weight of that mean, in [0, 1], for bias correction.
        retain_level: Running mean of L_r.
    """

    start: float
    end: float
    retain_start: float
    full: float = 1.0
    unit: float = 1.0
    reversible: bool = True
    settings: DialSettings = field(default_factory=DialSettings)
    lag: float = 0.0
    evidence: float = 0.0
    retain_level: float = field(init=False)

    def __post_init__(self) -> None:
        self.retain_level = self.retain_start

    def target(self, progress: float) -> float:
        """Target degree after a fraction ``progress`` of the run."""
        return self.start + (self.end - self.start) * min(1.0, progress / self.settings.ramp)

    def intensity(self, progress: float, degree: float, samples: int, retain_loss: float) -> float:
        """Update the running means with this step's batches and return the intensity.

        Args:
            progress: Fraction of the run completed.
            degree: Mean degree of the forget batch.
            samples: Size of the forget batch.
            retain_loss: L_r of the retain batch.
        """
        settings = self.settings
        weight = samples / (samples + settings.half_weight)
        self.evidence += weight * (1 - self.evidence)
        gap = self.full - self.start
        behind = (self.target(progress) - degree) / gap if gap > settings.min_gap * self.full else 0.0
        self.lag += weight * (behind - self.lag)
        self.retain_level += weight * (retain_loss - self.retain_level)
        upper = settings.repair_intensity if self.needs_repair else settings.max_intensity
        lower = settings.min_intensity if self.reversible else 0.0
        return min(max(settings.gain * self.behind, lower), upper)

    @property
    def behind(self) -> float:
        """The lag, corrected for the bias of a running mean that starts at zero."""
        return self.lag / self.evidence if self.evidence else 0.0

    @property
    def needs_repair(self) -> bool:
        """Whether L_r has risen above the repair threshold."""
        return self.retain_level > self.retain_start + self.settings.repair_above * self.unit

    def rate(self, progress: float) -> float:
        """Factor on the step length: 1 until the ramp ends, then decaying to ``final_rate``."""
        after = max(0.0, (progress - self.settings.ramp) / (1 - self.settings.ramp))
        return 1 - (1 - self.settings.final_rate) * after

    def state_dict(self) -> dict[str, Any]:
        """State that the next step depends on."""
        return {"lag": self.lag, "evidence": self.evidence, "retain_level": self.retain_level}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from :meth:`state_dict`."""
        self.lag, self.evidence, self.retain_level = state["lag"], state["evidence"], state["retain_level"]
