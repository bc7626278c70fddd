"""The command audit."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.cli import options
from gradpivot.cli.console import bar, say, say_json, wants_progress, watched_sweep
from gradpivot.cli.dispatch import run
from gradpivot.cli.inputs import device_named, output_folder, problem_of, set_threads
from gradpivot.cli.interrupt import terminating
from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.auditing import Worlds
    from gradpivot.data import ForgetSplit
    from gradpivot.experiments import Problem
    from gradpivot.methods import Method

__all__: list[str] = []


@dataclass(frozen=True, kw_only=True)
class _Case:
    """What is audited, loaded from the options."""

    chosen: options.AuditOptions
    problem: Problem
    split: ForgetSplit
    model: nn.Module
    original: nn.Module | None
    method: Method | None
    searched: bool


@run.register
def _(chosen: options.AuditOptions) -> int:
    out = chosen.out or (chosen.folder / "audit" if chosen.folder else Path("runs/audit"))
    if chosen.level == "full":
        _check_shadows(chosen.shadows)
    if chosen.folder is not None and not chosen.folder.is_dir():
        raise GradPivotError(f"there is no folder {chosen.folder}; 'gradpivot unlearn' writes one with --out")
    with output_folder(out):
        return _audit(chosen, out)


def _audit(chosen: options.AuditOptions, out: Path) -> int:
    from gradpivot.auditing import audit
    from gradpivot.report import audit_lines

    if (out / "audit.json").exists() and not chosen.overwrite:
        raise GradPivotError(f"{out} already holds an audit; name another folder with --out, or pass --overwrite")
    with terminating():
        case = _load(chosen)
        retrained = _retrained(case, out)
        worlds = _worlds(case)
        with bar("Attacks", wants_progress(chosen.json)) as report:
            found = audit(
                case.model, case.split, original=case.original, retrain=retrained or None, method=case.method,
                level=chosen.level, shadows=worlds, seed=chosen.seed, problem=case.problem.name,
                task=case.problem.task, images=chosen.images, workers=chosen.workers, progress=report,
                command=shlex.join(["gradpivot", *sys.argv[1:]]),
            )  # fmt: skip
    found.save(out)
    if chosen.json:
        say_json((out / "audit.json").read_text(encoding="utf-8"))
    else:
        more = [] if chosen.level != "quick" else ["--level standard adds a retrained reference and fine-tuning."]
        say(*audit_lines(found), *more, f"The evidence is in {out / 'audit.html'}")
    return 0


def _load(chosen: options.AuditOptions) -> _Case:
    """Load a run's folder, or the files that the options name."""
    from gradpivot.data import ForgetSplit
    from gradpivot.methods import make_method
    from gradpivot.runs import read_config, read_metrics
    from gradpivot.runtime import checked

    method: Method | None = None
    searched = False
    if chosen.folder is not None:
        config, metrics = read_config(chosen.folder), read_metrics(chosen.folder)
        if metrics["diverged"]:
            raise GradPivotError(f"{chosen.folder} diverged, so there is no unlearned model to audit")
        named: dict[str, Any] = {name: config.get(name) for name in ("problem", "model", "normalise")}
        files = {name: chosen.folder / f"{name}.safetensors" for name in ("model", "original")}
        chosen = replace(
            chosen, **named, map=(), weights=chosen.weights or files["model"],
            original=chosen.original or files["original"], split=chosen.split or chosen.folder / "split.json",
        )  # fmt: skip
        try:
            settings = checked(checked(metrics, provenance=Mapping)["provenance"], method=Mapping)["method"]
        except ValueError as error:
            raise GradPivotError(f"{chosen.folder}/metrics.json is damaged ({error}); repeat the run") from None
        method = make_method(settings)
        searched = "until" in config or "keep" in config
    if chosen.weights is None or chosen.split is None:
        raise GradPivotError("name a run's folder, or the model and what it forgot: --weights FILE --split split.json")
    set_threads(chosen.threads)
    problem, device = problem_of(chosen), device_named(chosen.device)
    train, test = problem.datasets()
    return _Case(
        chosen=chosen,
        problem=problem,
        split=ForgetSplit.load(chosen.split, train, test, target=problem.target),
        model=_weights(problem, chosen.weights, chosen.map, device),
        original=None if chosen.original is None else _weights(problem, chosen.original, chosen.map, device),
        method=method,
        searched=searched,
    )


def _weights(problem: Problem, path: Path, rules: tuple[str, ...], device: str) -> nn.Module:
    from gradpivot.models import load_foreign

    model = problem.model()
    load_foreign(model, path, rules)
    return model.to(device).eval()


def _retrained(case: _Case, out: Path) -> list[nn.Module]:
    """The given references; at level standard and full one is trained if there is none, and kept for the next audit."""
    from gradpivot.models import load_weights, save_weights, structure
    from gradpivot.runtime import environment
    from gradpivot.sweep import digest_of

    chosen, problem = case.chosen, case.problem
    device = device_named(chosen.device)
    if chosen.retrained or chosen.level == "quick":
        return [_weights(problem, path, chosen.map, device) for path in chosen.retrained]
    model = problem.model().to(device)
    # Named by everything that decides its weights: after a change another reference is trained.
    how: dict[str, Any] = {name: getattr(chosen, name) for name in ("seed", "precision", "compile")}
    facts = {"split": case.split.hash, "recipe": problem.training.to_dict(), "code": environment()["code"], **how}
    key = digest_of([facts, structure(model), chosen.threads, device])
    kept, checkpoint = out / f"retrained-{key}.safetensors", out / f"retraining-{key}.pt"
    if kept.exists():
        load_weights(model, kept)
        return [model.eval()]
    with bar("Retraining a reference", wants_progress(chosen.json)) as report:
        outcome = problem.prepared(
            model, case.split, problem.training, progress=report, workers=chosen.workers, checkpoint=checkpoint, **how
        ).outcome()
    if outcome.diverged:
        raise GradPivotError(f"retraining the reference diverged ({outcome.diverged['reason']}); pass --retrained FILE")
    save_weights(outcome.model, kept, {"split": case.split.hash, "recipe": problem.training.label})
    checkpoint.unlink(missing_ok=True)
    return [outcome.model.eval()]


def _worlds(case: _Case) -> Worlds | None:
    """The shadow models' margins at level full; None where the procedure cannot be repeated on shadow models."""
    from gradpivot.auditing import Shadows

    chosen = case.chosen
    if chosen.level != "full" or len(case.split.forget_indices) < 2:
        return None
    if reason := _unrepeatable(case):
        sys.stderr.write(f"gradpivot: U-LiRA is left out: {reason}\n")
        return None
    assert case.method is not None
    with watched_sweep("Shadow models", chosen.json) as watch:
        shadows = Shadows(
            problem=chosen.problem, count=chosen.shadows, store=chosen.store, engine=chosen.engine,
            jobs=chosen.jobs, threads=chosen.threads, watch=watch,
        )  # fmt: skip
        return shadows.run(case.split, case.method, chosen.seed)


def _check_shadows(count: int) -> None:
    from gradpivot.auditing import Shadows

    Shadows(problem="", count=count)


def _unrepeatable(case: _Case) -> str:
    """Why shadow models cannot repeat how the audited model was unlearned; empty if they can."""
    if case.method is None:
        return "the model was unlearned by other software"
    if case.searched:
        return "the run searched for a target (--until, --keep), which shadow models don't repeat"
    return "--model replaces the problem's model; define a problem with your model" if case.chosen.model else ""
