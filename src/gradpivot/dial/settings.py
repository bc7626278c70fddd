"""Every constant of the dial in one place. Losses are in nats; a task's ``loss_unit`` says what a nat is in its own."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SUITED", "DialSettings"]

SUITED = "suited"
"""The name of the objective that suits what is forgotten: unlikelihood for a class, NPO for records."""


@dataclass(frozen=True, kw_only=True)
class DialSettings:
    """The constants of :class:`gradpivot.dial.Dial`. They were chosen on digits and hold on MNIST and CIFAR-10.

    Attributes:
        ramp: Fraction of the run over which the target degree rises; the rest holds it and repairs the retain loss.
        gain: Intensity per unit of lag: 16 points behind the ramp is full intensity.
        max_intensity: At 1 nothing at all would be done for L_r.
        min_intensity: Below 0 a run gives back what it forgot too much; that is a correction, not a course.
        half_weight: Forget samples after which a new observation counts half: one batch says little about a share.
        repair_above: While L_r stands this much above its start, the run repairs before it forgets more.
        repair_intensity: Upper bound on the intensity while it does.
        final_rate: Steps shrink to this fraction by the end, so that the point reached is not left by chance.
        min_gap: Below this fraction of the full degree there is nothing to forget; the run only holds.
        retain_tolerance: A step may raise L_r of its own batch by this: what is kept loses 5 % of its likelihood.
        forget_reach: A step may change L_f by this …
        forget_reach_share: … plus this fraction of L_f. L_f leaves its plateau like an avalanche: with longer steps a
            run cannot stop half-way.
        reference_steps: In a run of more steps each may change less, in proportion: thousands of full ones wander off.
        curvature: A change may differ from the first-order prediction by this fraction of it, plus the tolerance.
        revert_above: A step that changed a loss by more than this multiple of what it may is taken back.
        growth: Factor on the step length while the run lags and uses less than ``growth_below`` of what it may.
        growth_below: See ``growth``.
        growth_lag: Lag below which longer steps are not wanted.
        max_cut: The step length shrinks by no more than this factor at a time.
        min_rate: Below this a rate means nothing.
        max_rate: Above this it would leave the range of numbers in the end.
        max_move: No step is longer than this fraction of the weights' own norm.
        full_gap: Records this much less uncertain than held-out data get the whole retain budget; nearer ones less, in
            proportion.
        min_record_gap: Records this much less uncertain than held-out data look like them already.
        validation_samples: Held-out samples that the target of records is measured on, once.
        search_samples: Samples of each set that the line search measures on: a share is then right to a point.
        search_tolerance: Accuracy of the line search, as a fraction of the gap between start and full degree.
        search_batch: Samples a forward pass.
        extrapolation: How far a run that fell short may be extended along its line, as long as that does no harm.
        extrapolation_looks: Measurements between two of these.
        aim_below: The line search aims at this fraction of what the retain loss may rise by (its root), so that the
            points near it are affordable too.
        min_share: No shorter part of the line is tried.
    """

    ramp: float = 0.6
    gain: float = 6.0
    max_intensity: float = 0.95
    min_intensity: float = -0.3
    half_weight: int = 128
    repair_above: float = 0.1
    repair_intensity: float = 0.1
    final_rate: float = 0.1
    min_gap: float = 1e-3

    retain_tolerance: float = 0.05
    forget_reach: float = 0.15
    forget_reach_share: float = 0.1
    reference_steps: int = 200
    curvature: float = 0.5
    revert_above: float = 2.0
    growth: float = 1.5
    growth_below: float = 0.5
    growth_lag: float = 0.02
    max_cut: float = 0.05
    min_rate: float = 1e-12
    max_rate: float = 1e12
    max_move: float = 0.02

    full_gap: float = 0.2
    min_record_gap: float = 1e-4
    validation_samples: int = 10_000

    search_samples: int = 2000
    search_tolerance: float = 0.01
    search_batch: int = 256
    extrapolation: tuple[float, ...] = (1.1, 1.2, 1.35, 1.5)
    extrapolation_looks: int = 4
    aim_below: float = 0.95
    min_share: float = 0.01

    @property
    def retain_budget(self) -> float:
        """What a whole run may cost in L_r: what it repairs above, and what one step may add."""
        return self.repair_above + self.retain_tolerance
