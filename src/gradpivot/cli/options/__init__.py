"""Options of all commands as dataclasses. A field is an option, its docstring the help text."""

from gradpivot.cli.options.audits import AuditOptions
from gradpivot.cli.options.datasets import DataCheckOptions, DataGetOptions, DataListOptions
from gradpivot.cli.options.looking import CompletionOptions, MethodsOptions, ReportOptions, RerunOptions
from gradpivot.cli.options.reproduction import (
    ReproduceCifar10ClassOptions,
    ReproduceDdpmOptions,
    ReproduceDigitsOptions,
    ReproduceToyOptions,
    ReproduceVaeOptions,
)
from gradpivot.cli.options.running import (
    DemoOptions,
    JudgeOptions,
    ProblemOptions,
    ProblemRun,
    TraceOptions,
    TrainOptions,
    UnlearnOptions,
)
from gradpivot.cli.options.sweeps import (
    CompareOptions,
    RecipesOptions,
    StoreCheckOptions,
    StoreExportOptions,
    StoreImportOptions,
    SweepOptions,
)

__all__ = [
    "AuditOptions", "CompareOptions", "CompletionOptions", "DataCheckOptions", "DataGetOptions", "DataListOptions",
    "DemoOptions", "JudgeOptions", "MethodsOptions", "ProblemOptions", "ProblemRun", "RecipesOptions",
    "ReportOptions", "ReproduceCifar10ClassOptions", "ReproduceDdpmOptions", "ReproduceDigitsOptions",
    "ReproduceToyOptions", "ReproduceVaeOptions", "RerunOptions", "StoreCheckOptions", "StoreExportOptions",
    "StoreImportOptions", "SweepOptions", "TraceOptions", "TrainOptions", "UnlearnOptions",
]  # fmt: skip
