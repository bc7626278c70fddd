r"""The ramp: from the observed degree of forgetting to how hard the next step forgets. Pure functions and one mean.

The target degree rises linearly over the first part of a run and is held after that. A run that lags behind turns
harder; one that is there turns to the fidelity anchor (hold L_f, repair L_r); one that is ahead gives a little back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from gradpivot.dial.settings import DialSettings

__all__ = ["Ramp", "asked_degree", "gamma_for"]


def asked_degree(gamma: float) -> float:
    r"""The fraction of the gap between the original and "forgotten" that γ asks for: sin(πγ/2).

    It is the pull cos∠(g_γ, f) = sin(γφ) of the paper's pivot on orthogonal gradients (φ = π/2): 0 at γ = 0, 1 at
    γ = 1, even (no tenth of γ is more than 16 points), and level at the end, where UA is.
    """
    return math.sin(math.pi * gamma / 2)


def gamma_for(degree: float) -> float:
    """The γ that asks for ``degree``; the inverse of :func:`asked_degree`."""
    return 2 / math.pi * math.asin(min(max(degree, 0.0), 1.0))


@dataclass
class Ramp:
    """Feedback from the degree of forgetting to the intensity of a step.

    Attributes:
        start: The degree before the run, in [0, 1].
        asked: The degree it should end with.
        retain_start: L_r before the run, over enough samples: after one easy batch everything would look hurt.
        full: The degree that γ = 1 asks for.
        unit: What a nat is in this task's losses.
        gives_back: Whether the objective can lower the degree again.
        settings: The constants.
        lag: How far the run is behind its ramp, as a fraction of the gap from start to full: a running mean of target
            minus observed. Both are averaged alike, so that the delay of the mean is no part of the lag.
        evidence: How much that mean has seen, in [0, 1].
        retain_level: A running mean of L_r.
    """

    start: float
    asked: float
    retain_start: float
    full: float = 1.0
    unit: float = 1.0
    gives_back: bool = True
    settings: DialSettings = field(default_factory=DialSettings)
    lag: float = 0.0
    evidence: float = 0.0
    retain_level: float = field(init=False)

    def __post_init__(self) -> None:
        self.retain_level = self.retain_start

    def target(self, progress: float) -> float:
        """The degree that a run should have when a fraction ``progress`` of it is done."""
        return self.start + (self.asked - self.start) * min(1.0, progress / self.settings.ramp)

    def intensity(self, progress: float, degree: float, samples: int, retain_loss: float) -> float:
        """How hard to turn, given what the batches of this step show.

        Args:
            progress: The fraction of the run that is done.
            degree: The mean degree of the forget batch.
            samples: How many samples it has.
            retain_loss: L_r of the retain batch.
        """
        use = self.settings
        weight = samples / (samples + use.half_weight)
        self.evidence += weight * (1 - self.evidence)
        # As a fraction of the gap: degrees may begin anywhere, and end below 1.
        gap = self.full - self.start
        behind = (self.target(progress) - degree) / gap if gap > use.min_gap * self.full else 0.0
        self.lag += weight * (behind - self.lag)
        self.retain_level += weight * (retain_loss - self.retain_level)
        most = use.repair_intensity if self.is_hurt else use.max_intensity
        least = use.min_intensity if self.gives_back else 0.0
        return min(max(use.gain * self.behind, least), most)

    @property
    def behind(self) -> float:
        """The lag without the bias of a mean that began at zero."""
        return self.lag / self.evidence if self.evidence else 0.0

    @property
    def is_hurt(self) -> bool:
        """Whether L_r stands further above its start than it may."""
        return self.retain_level > self.retain_start + self.settings.repair_above * self.unit

    def rate(self, progress: float) -> float:
        """What steps are multiplied with: 1 until the ramp ends, then down to the final rate."""
        after = max(0.0, (progress - self.settings.ramp) / (1 - self.settings.ramp))
        return 1 - (1 - self.settings.final_rate) * after

    def state_dict(self) -> dict[str, Any]:
        """What the next step depends on."""
        return {"lag": self.lag, "evidence": self.evidence, "retain_level": self.retain_level}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self.lag, self.evidence, self.retain_level = state["lag"], state["evidence"], state["retain_level"]
