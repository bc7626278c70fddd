from .attack import (
    LEVELS as LEVELS,
    Attack as Attack,
    Measurement as Measurement,
    NotApplicableError as NotApplicableError,
    NotTestedError as NotTestedError,
)
from .procedure import Audit as Audit, Shadows as Shadows, audit as audit, check_level as check_level
from .registry import all_attacks as all_attacks
from .subject import Outputs as Outputs, Subject as Subject
from .worlds import Worlds as Worlds, run_worlds as run_worlds, target_of as target_of
