from .batch import input_and_target as input_and_target
from .classification import Classification as Classification
from .diffusion.denoising import Diffusion as Diffusion
from .diffusion.sampling import Sampler as Sampler
from .objectives import (
    Objective as Objective,
    list_objectives as list_objectives,
    objective as objective,
    register_objective as register_objective,
)
from .task import (
    Forgetting as Forgetting,
    GradualTask as GradualTask,
    Predictions as Predictions,
    Task as Task,
    UncertaintyTask as UncertaintyTask,
    check_per_sample as check_per_sample,
    check_task as check_task,
)
from .vae import Autoencoding as Autoencoding
