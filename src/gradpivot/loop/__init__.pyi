from .batches import (
    Batch as Batch,
    PairedBatch as PairedBatch,
    Plan as Plan,
    paired_plan as paired_plan,
    plain_batch_size as plain_batch_size,
    plain_plan as plain_plan,
    recalibrated_batch_size as recalibrated_batch_size,
    sequential_plan as sequential_plan,
)
from .borrowed import statistics_of as statistics_of
from .checkpoint import Checkpoint as Checkpoint
from .finished import finished_training as finished_training
from .gradients import Gradients as Gradients
from .history import finite as finite
from .loop import Loop as Loop
from .motion import RevertibleOptimizer as RevertibleOptimizer
from .normalisation import (
    apply_policy as apply_policy,
    frozen_statistics as frozen_statistics,
    has_batch_statistics as has_batch_statistics,
    has_batchnorm as has_batchnorm,
    has_frozen_batchnorm as has_frozen_batchnorm,
    preserved_statistics as preserved_statistics,
    recalibrate_over as recalibrate_over,
    restored_statistics as restored_statistics,
    running_statistics as running_statistics,
    same_statistics as same_statistics,
)
from .optimizers import DescentRecipe as DescentRecipe
from .outcome import (
    Diverged as Diverged,
    FirstOrderChange as FirstOrderChange,
    Outcome as Outcome,
    Progress as Progress,
    RunnableMethod as RunnableMethod,
)
