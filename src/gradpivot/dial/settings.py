"""Constants of the dial. Losses are in nats; a task's ``loss_unit`` converts them to its own units."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SUITED", "DialSettings"]

SUITED = "suited"
"""Objective name for the split's default: unlikelihood for a class, NPO for records."""


@dataclass(frozen=True, kw_only=True)
class DialSettings:
    """Constants of :class:`gradpivot.dial.Dial`, tuned on digits and validated on MNIST and CIFAR-10.

    Attributes:
        ramp: Fraction of the run over which the target degree rises; the rest holds it and repairs the retain loss.
        gain: Intensity per unit of lag; a lag of 0.16 gives full intensity.
        max_intensity: Maximum intensity; 1 would ignore L_r.
        min_intensity: Minimum intensity; negative values undo overshoot.
        half_weight: Batch size at which a new observation gets weight 1/2 in the running means.
        repair_above: Rise of L_r above its start at which the run repairs it before forgetting more.
        repair_intensity: Maximum intensity while repairing.
        final_rate: Fraction that the step length decays to after the ramp, so that the end point is stable.
        hold: Fraction of the run after the ramp before it may end early …
        done_lag: … with a lag of at most this …
        done_rise: … and L_r at most this much above its start.
        min_gap: Gap to the full degree, as a fraction of it, below which there is nothing to forget.
        retain_tolerance: Rise of L_r on its own batch that a step may cause: 5 % of the likelihood.
        forget_reach: Change of L_f that a step may cause …
        forget_reach_share: … plus this fraction of L_f. L_f drops sharply once it leaves its plateau; longer steps
            cannot stop half-way.
        whole_reach: Factor on these two at γ = 1 under recomputed BatchNorm statistics.
        reference_steps: Runs with more steps than this get proportionally smaller bounds per step.
        curvature: Allowed deviation from the first-order prediction, as a fraction of it, plus ``retain_tolerance``.
        revert_above: Multiple of its bound at which a step is reverted.
        check_above: Expected fraction of the bound on L_r above which a step is checked …
        check_forget_above: … and of the bound on L_f, which limits the pace of forgetting and not the harm.
        check_every: Maximum number of steps in a row without a check.
        growth: Factor on the step length while the run lags and steps use less than ``growth_below`` of their bound.
        growth_below: See ``growth``.
        growth_lag: Minimum lag for longer steps.
        max_cut: Smallest factor by which the step length shrinks at once.
        min_rate: Minimum factor on the learning rate.
        max_rate: Maximum factor on the learning rate.
        max_move: Maximum step length, as a fraction of the weight norm.
        full_gap: Gap in uncertainty between records and held-out data that grants the whole retain budget; a smaller
            gap grants proportionally less.
        min_record_gap: Gap below which records already look like held-out data.
        validation_samples: Maximum number of held-out samples for the target of records.
        search_samples: Maximum number of samples of each set for the line search.
        statistics_samples: Maximum number of retain samples for the choice of BatchNorm statistics.
        search_tolerance: Tolerance of the line search, as a fraction of the gap between start and full degree.
        search_batch: Batch size of the line search; on a CPU larger ones leave the cache.
        held_batch: Batch size for holding records that earlier requests deleted.
        extrapolation: Points beyond the end of the run that the line search tries if the run fell short.
        extrapolation_evaluations: Maximum number of evaluations between two of these points.
        aim_below: Fraction of the root of the retain budget that the line search aims at, to end up below it.
        min_share: Smallest fraction of the line that is tried.
        shrink: Fraction of the original weights that a restart keeps if γ < 1; at γ = 1 it keeps none.
        training_epochs: Epochs of the original's training, if unknown.
        training_lr: Peak learning rate of the original's training, if unknown.
        repair_gap: Rise of the mean uncertainty about the retain set that a restart may leave.
        held_out_rise: Rise of the error on held-out data that a restart may cause.
        restart_rate: Peak learning rate of SGD after a restart, as a multiple of training's.
        restart_batch: Batch size after a restart.
        restart_max_norm: Maximum gradient norm after a restart.
    """

    ramp: float = 0.6
    gain: float = 6.0
    max_intensity: float = 0.95
    min_intensity: float = -0.3
    half_weight: int = 128
    repair_above: float = 0.1
    repair_intensity: float = 0.1
    final_rate: float = 0.1
    hold: float = 0.1
    done_lag: float = 0.01
    done_rise: float = 0.01
    min_gap: float = 1e-3

    retain_tolerance: float = 0.05
    forget_reach: float = 0.15
    forget_reach_share: float = 0.1
    whole_reach: float = 2.0
    reference_steps: int = 200
    curvature: float = 0.5
    revert_above: float = 2.0
    check_above: float = 0.5
    check_forget_above: float = 1.5
    check_every: int = 7
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
    statistics_samples: int = 512
    search_tolerance: float = 0.01
    search_batch: int = 64
    held_batch: int = 64
    extrapolation: tuple[float, ...] = (1.1, 1.2, 1.35, 1.5)
    extrapolation_evaluations: int = 4
    aim_below: float = 0.95
    min_share: float = 0.01

    shrink: float = 0.3
    training_epochs: int = 30
    training_lr: float = 0.05
    repair_gap: float = 0.01
    held_out_rise: float = 0.05
    restart_rate: float = 2.0
    restart_batch: int = 64
    restart_max_norm: float = 1.0

    @property
    def retain_budget(self) -> float:
        """Rise of L_r that a whole run may cause: the repair threshold plus one step."""
        return self.repair_above + self.retain_tolerance
