from .ahead import train_ahead as train_ahead
from .cell import Cell as Cell, Setting as Setting, cells_of as cells_of, digest_of as digest_of
from .engines.job import (
    Engine as Engine,
    Job as Job,
    JobOutcome as JobOutcome,
    Pace as Pace,
    Resources as Resources,
    perform as perform,
)
from .engines.registry import list_engines as list_engines, start_engine as start_engine
from .store.store import Failure as Failure, Store as Store
from .study import Runs as Runs, run_study as run_study
from .sweeping import State as State, Sweep as Sweep, Watch as Watch
from .work import (
    base_split as base_split,
    check_targets as check_targets,
    own_settings as own_settings,
    setting_of as setting_of,
)
