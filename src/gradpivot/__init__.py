"""gradpivot: controllable machine unlearning.

Make a trained PyTorch model forget chosen data, as much as you ask for and no more::

    from gradpivot import CUP, ForgetSplit, unlearn

    split = ForgetSplit.by_class(train, test, classes=3)
    result = unlearn(model, split, CUP(gamma=0.5))
    print(result.scores)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gradpivot.version import __version__

if TYPE_CHECKING:
    from gradpivot import geometry
    from gradpivot.api import Trace, score, trace, unlearn
    from gradpivot.backward import Pivot
    from gradpivot.control.controller import Targeted
    from gradpivot.data.split import ForgetSplit
    from gradpivot.errors import GradPivotError
    from gradpivot.evaluate.scores import Scores
    from gradpivot.frontier.frontier import Frontier
    from gradpivot.geometry.step import PivotStep
    from gradpivot.methods import list_methods
    from gradpivot.methods.be import BE
    from gradpivot.methods.bs import BS
    from gradpivot.methods.cup import CUP
    from gradpivot.methods.dcgd import DCGD
    from gradpivot.methods.ga import GA
    from gradpivot.methods.iu import IU
    from gradpivot.methods.l1_sparse import L1Sparse
    from gradpivot.methods.pcgrad import PCGrad
    from gradpivot.methods.retrain import Retrain
    from gradpivot.methods.rl import RL
    from gradpivot.methods.sa import SA
    from gradpivot.methods.salun import SalUn
    from gradpivot.methods.ws import WS
    from gradpivot.run import Result
    from gradpivot.tasks.classification import Classification
    from gradpivot.tasks.diffusion import Diffusion

__all__ = [
    "BE",
    "BS",
    "CUP",
    "DCGD",
    "GA",
    "IU",
    "RL",
    "SA",
    "WS",
    "Classification",
    "Diffusion",
    "ForgetSplit",
    "Frontier",
    "GradPivotError",
    "L1Sparse",
    "PCGrad",
    "Pivot",
    "PivotStep",
    "Result",
    "Retrain",
    "SalUn",
    "Scores",
    "Targeted",
    "Trace",
    "__version__",
    "geometry",
    "list_methods",
    "score",
    "trace",
    "unlearn",
]

# Where each public name lives. Looked up on first use, so that importing gradpivot does not import torch and
# the command line answers in half a second.
_HOMES = {
    "BE": "methods.be",
    "BS": "methods.bs",
    "CUP": "methods.cup",
    "Classification": "tasks.classification",
    "Diffusion": "tasks.diffusion",
    "DCGD": "methods.dcgd",
    "ForgetSplit": "data.split",
    "Frontier": "frontier.frontier",
    "GA": "methods.ga",
    "GradPivotError": "errors",
    "L1Sparse": "methods.l1_sparse",
    "IU": "methods.iu",
    "PCGrad": "methods.pcgrad",
    "Pivot": "backward",
    "PivotStep": "geometry.step",
    "RL": "methods.rl",
    "Result": "run",
    "Retrain": "methods.retrain",
    "SA": "methods.sa",
    "SalUn": "methods.salun",
    "Scores": "evaluate.scores",
    "Targeted": "control.controller",
    "Trace": "api",
    "WS": "methods.ws",
    "list_methods": "methods",
    "score": "api",
    "trace": "api",
    "unlearn": "api",
}


def __getattr__(name: str) -> Any:
    if name == "geometry":
        return importlib.import_module("gradpivot.geometry")
    if name in _HOMES:
        return getattr(importlib.import_module(f"gradpivot.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'gradpivot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
