from .choice import Choice as Choice, recommend as recommend
from .conditions import Targets as Targets
from .controller import (
    Targeted as Targeted,
    check_steerable as check_steerable,
    check_walkable as check_walkable,
    forget_checkpoints as forget_checkpoints,
    unlearn_until as unlearn_until,
)
from .quick import POINTS as POINTS, Cost as Cost, check_quick as check_quick, continuation as continuation
