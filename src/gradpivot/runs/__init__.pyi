from .checks import check_fits as check_fits, check_run as check_run, check_scorable as check_scorable
from .folder import (
    finished_run as finished_run,
    read_config as read_config,
    read_metrics as read_metrics,
    read_run as read_run,
    staged as staged,
    write_run as write_run,
    write_training as write_training,
)
from .keys import record_key as record_key
from .original import original_file as original_file, original_model as original_model, train_original as train_original
from .result import Result as Result
from .run import (
    Options as Options,
    Prepared as Prepared,
    Running as Running,
    run_method as run_method,
    split_for as split_for,
)
from .together import (
    Lesson as Lesson,
    Taught as Taught,
    train_together as train_together,
    why_separately as why_separately,
)
from .training import (
    Epoch as Epoch,
    FitToAll as FitToAll,
    Trained as Trained,
    everything as everything,
    train_model as train_model,
)
