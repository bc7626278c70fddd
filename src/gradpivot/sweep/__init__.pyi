from .cell import digest_of as digest_of
from .engines.job import Engine as Engine
from .engines.local import LocalEngine as LocalEngine
from .engines.ray import RayEngine as RayEngine
from .store.store import Failure as Failure, Store as Store
from .study import Runs as Runs, run_study as run_study
from .sweeping import State as State, Sweep as Sweep
