"""gradpivot: controllable machine unlearning.

Make a trained PyTorch model forget chosen data, as much as you ask for and no more::

    from gradpivot import CUP, ForgetSplit, unlearn

    split = ForgetSplit.by_class(train, test, classes=3)
    result = unlearn(model, split, CUP(gamma=0.5))
    print(result.scores)
"""

from typing import TYPE_CHECKING

import lazy_loader

__version__ = "0.2.0"

if TYPE_CHECKING:
    from gradpivot import geometry as geometry
    from gradpivot.api import Trace as Trace, score as score, trace as trace, train as train, unlearn as unlearn
    from gradpivot.auditing import Audit as Audit, audit as audit
    from gradpivot.data import ForgetSplit as ForgetSplit
    from gradpivot.errors import GradPivotError as GradPivotError, NotReachedWarning as NotReachedWarning
    from gradpivot.evaluate import Scores as Scores
    from gradpivot.geometry import Pivot as Pivot, PivotStep as PivotStep
    from gradpivot.methods import (
        BE as BE,
        BS as BS,
        CUP as CUP,
        DCGD as DCGD,
        EPO as EPO,
        FT as FT,
        GA as GA,
        IU as IU,
        RL as RL,
        SA as SA,
        SCRUB as SCRUB,
        SSD as SSD,
        STCH as STCH,
        WS as WS,
        BadTeacher as BadTeacher,
        CFk as CFk,
        Delete as Delete,
        EUk as EUk,
        L1Sparse as L1Sparse,
        NegGradPlus as NegGradPlus,
        PCGrad as PCGrad,
        Retrain as Retrain,
        SalUn as SalUn,
        SFRon as SFRon,
        WarmRestart as WarmRestart,
        list_methods as list_methods,
    )
    from gradpivot.results import Frontier as Frontier
    from gradpivot.runs import Result as Result
    from gradpivot.targets import Targeted as Targeted
    from gradpivot.tasks import Classification as Classification, Diffusion as Diffusion

# Looked up on first use, so that importing gradpivot does not import torch and the command line answers at once.
__getattr__, _, __all__ = lazy_loader.attach(
    __name__,
    submodules=["geometry"],
    submod_attrs={
        "api": ["Trace", "score", "trace", "train", "unlearn"],
        "auditing": ["Audit", "audit"],
        "data": ["ForgetSplit"],
        "errors": ["GradPivotError", "NotReachedWarning"],
        "evaluate": ["Scores"],
        "geometry": ["Pivot", "PivotStep"],
        "methods": [
            "BE",
            "BS",
            "BadTeacher",
            "CFk",
            "CUP",
            "DCGD",
            "Delete",
            "EPO",
            "EUk",
            "FT",
            "GA",
            "IU",
            "L1Sparse",
            "NegGradPlus",
            "PCGrad",
            "RL",
            "Retrain",
            "SA",
            "SCRUB",
            "SFRon",
            "SSD",
            "STCH",
            "SalUn",
            "WS",
            "WarmRestart",
            "list_methods",
        ],
        "results": ["Frontier"],
        "runs": ["Result"],
        "targets": ["Targeted"],
        "tasks": ["Classification", "Diffusion"],
    },
)
__all__ += ["__version__"]
__dir__ = __all__.copy
