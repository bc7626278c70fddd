from ._correction import correction as correction
from .backward import Pivot as Pivot
from .combination import combine as combine
from .dual_cone import DualConeWeighting as DualConeWeighting
from .fairgrad import FairWeighting as FairWeighting
from .gradient import (
    apply_mask as apply_mask,
    gradient_of as gradient_of,
    plain_gradient as plain_gradient,
    trainable_masks as trainable_masks,
)
from .gramian import Gram as Gram, Room as Room, change_along as change_along, gram_of as gram_of
from .nash import nash_weights as nash_weights
from .pcgrad import PCGradWeighting as PCGradWeighting
from .pivot import (
    Case as Case,
    PivotWeighting as PivotWeighting,
    case_of as case_of,
    check_gamma as check_gamma,
    pivot_weights as pivot_weights,
    steered_weights as steered_weights,
)
from .sharding import is_sharded as is_sharded
from .step import PivotStep as PivotStep, describe as describe, limited as limited
from .torchjd import from_torchjd as from_torchjd
from .weighting import (
    LossWeighted as LossWeighted,
    WeightedSum as WeightedSum,
    Weighting as Weighting,
    Weights as Weights,
)
