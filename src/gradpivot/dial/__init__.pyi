from .dial import Dial as Dial, Steerable as Steerable
from .goal import resolve_goal as resolve_goal, resolve_objective as resolve_objective
from .ramp import gamma_for as gamma_for, target_degree as target_degree
from .restart import (
    CEILING as CEILING,
    Restart as Restart,
    Restartable as Restartable,
    restart_epochs as restart_epochs,
)
from .segment import Segment as Segment
from .settings import SUITED as SUITED, DialSettings as DialSettings
from .statistics import can_recalibrate as can_recalibrate
