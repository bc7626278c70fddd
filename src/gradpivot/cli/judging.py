"""The judge command: score the samples of generators."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from gradpivot.cli.console import bar, say_one, wants_progress
from gradpivot.cli.dispatch import run
from gradpivot.cli.inputs import device_named, output_folder, problem_of, set_threads, split_of
from gradpivot.cli.options.running import JudgeOptions
from gradpivot.cli.torchrun import is_first
from gradpivot.errors import GradPivotError
from gradpivot.evaluate import GenerationScores

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.evaluate import Examination, Judging, Scorer
    from gradpivot.experiments import Problem

__all__ = ["KEPT", "scorer_in"]

JUDGED_SCHEMA = "gradpivot.judged/1"
KEPT = "classifier.safetensors"
"""File name of the saved classifier."""


@run.register
def _(chosen: JudgeOptions) -> int:
    """Draw samples from every model, score them, and save scores and pictures."""
    with output_folder(chosen.out):
        return _judge(chosen)


def _judge(chosen: JudgeOptions) -> int:
    from gradpivot.runtime import environment, write_text

    set_threads(chosen.threads)
    device, problem = device_named(chosen.device), problem_of(chosen)
    judging = _judging(problem, chosen)
    if chosen.classes is None:
        raise GradPivotError("name the forgotten classes, for example --classes 3")
    split = split_of(problem, classes=chosen.classes)
    judged = _score_all(chosen, problem, judging, split, device)
    facts = {
        "schema": JUDGED_SCHEMA,
        "problem": problem.name,
        "judging": judging.to_dict(),
        "split": split.facts(),
        "models": [
            {"name": name, "scores": scores.to_dict(), "ra": scores.ra, "ua": scores.ua}
            for name, scores in judged.items()
        ],
        "environment": environment(device),
    }
    text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    write_text(chosen.out / "judged.json", text)
    say_one(chosen.json, text, _table(judged), f"Scores and pictures are in {chosen.out}")
    return 0


def _judging(problem: Problem, chosen: JudgeOptions) -> Judging:
    if problem.judging is None:
        raise GradPivotError(
            f"{problem.name} is not a generator, or its Problem has no judging=; set it, or use 'gradpivot unlearn', "
            f"which scores classifiers"
        )
    overrides = {
        name: value
        for name in ("samples", "features", "reference_images", "sampler", "steps", "guidance")
        if (value := getattr(chosen, name)) not in (None, ())
    }
    if "samples" in overrides:
        overrides |= {"forgotten_samples": None, "columns": min(problem.judging.columns, overrides["samples"])}
    return dataclasses.replace(problem.judging, **overrides)


def _score_all(
    chosen: JudgeOptions, problem: Problem, judging: Judging, split: ForgetSplit, device: str
) -> dict[str, GenerationScores]:
    """Score every model; reuses scores saved in the output folder."""
    from gradpivot.cli.interrupt import terminating
    from gradpivot.experiments import find_problem

    models = _load_models(chosen, problem, device)
    with terminating():
        classifier = classifier_in(chosen.out, device, chosen.classifier, quiet=chosen.json)
        judge = classifier(find_problem(judging.classifier))
        scorer = problem.scorer(lambda _: judge, judging=judging, folder=chosen.out)
        keys = {name: _key(model, judge, judging, split) for name, model in models.items()}
        judged = {name: scores for name, key in keys.items() if (scores := _read_scores(chosen.out, name, key))}
        for name in (name for name in models if name not in judged):
            with bar(f"Samples of {name}", wants_progress(chosen.json)) as report:
                found = scorer.examine(models[name], split, report)
            judged[name] = _save_scores(chosen.out, name, keys[name], found)
    return {name: judged[name] for name in models}


def _load_models(chosen: JudgeOptions, problem: Problem, device: str) -> dict[str, nn.Module]:
    from gradpivot.models import load_foreign

    models = {}
    for file in chosen.weights:
        model = problem.model()
        load_foreign(model, file, chosen.map)
        models[_model_name(file)] = model.to(device).eval()
    if len(models) < len(chosen.weights):
        raise GradPivotError("two weights files have the same name and folder; judge them one at a time")
    return models


def _key(model: nn.Module, classifier: nn.Module, judging: Judging, split: ForgetSplit) -> str:
    """Digest of everything that a model's scores depend on."""
    from gradpivot.models import weights_digest
    from gradpivot.runtime import environment
    from gradpivot.sweep import digest_of

    facts = environment()
    versions = [facts["code"], facts["packages"]["torch"], facts["packages"]["diffusers"]]
    weights = [weights_digest(model), weights_digest(classifier)]
    return digest_of([weights, judging.to_dict(), split.hash, versions])


def _read_scores(folder: Path, name: str, key: str) -> GenerationScores | None:
    """Read saved scores; None if they are missing, unreadable or have another key."""
    from gradpivot.runtime import parse_json

    try:
        saved = parse_json((folder / f"{name}.scores.json").read_text(encoding="utf-8"))
        found = GenerationScores.from_dict(saved["scores"]) if saved["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if (folder / f"{name}.png").exists() else None


def _save_scores(folder: Path, name: str, key: str, found: Examination) -> GenerationScores:
    """Save a model's pictures and scores immediately, because the next model may take an hour."""
    from gradpivot.runtime import write_text

    assert found.pictures is not None
    found.pictures.save(folder / f"{name}.png")
    saved = {"schema": JUDGED_SCHEMA, "key": key, "scores": found.scores.to_dict()}
    write_text(folder / f"{name}.scores.json", json.dumps(saved, ensure_ascii=False) + "\n")
    return GenerationScores.from_dict(found.scores.to_dict())


def _model_name(file: Path) -> str:
    """A model's name: its file's, or its folder's for model.safetensors."""
    return file.absolute().parent.name if file.stem == "model" else file.stem


def scorer_in(problem: Problem, folder: Path, device: str, classifier: Path | None = None, *, quiet: bool) -> Scorer:
    """The problem's scorer; saves the classifier of samples in ``folder`` for a rerun."""
    from gradpivot.models import save_weights

    load = classifier_in(folder, device, classifier, quiet=quiet)

    def load_and_save(found: Problem) -> nn.Module:
        model = load(found)
        if classifier is not None and is_first():
            save_weights(model, folder / KEPT, {"from": classifier.name})
        return model

    return problem.scorer(load_and_save, folder=folder)


def classifier_in(
    folder: Path, device: str, given: Path | None = None, *, quiet: bool = False
) -> Callable[[Problem], nn.Module]:
    """Returns a function that loads the classifier from ``given``, or trains it and saves it in ``folder``."""

    def load(problem: Problem) -> nn.Module:
        from gradpivot.models import load_foreign
        from gradpivot.runs import everything, original_model

        if given is None:
            with bar("Preparing the classifier", wants_progress(quiet)) as report:
                model = original_model(problem, everything(problem), 0, folder / KEPT, report)
        else:
            model = problem.model()
            load_foreign(model, given, ())
        return model.to(device).eval()

    return load


def _table(judged: dict[str, GenerationScores]) -> str:
    rows: list[tuple[str, ...]] = [("model", "UA %", "kept classes recognised %", "Fréchet distance")]
    for name, scores in judged.items():
        shares = [
            f"{100 * share:.1f} ({100 * low:.1f} to {100 * high:.1f})"
            for share, (low, high) in (
                (scores.ua, scores.interval("ua")), (scores.ra, scores.interval("ra")),
            )
        ]  # fmt: skip
        rows.append((name, *shares, "; ".join(map(str, scores.frechet))))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    first = next(iter(judged.values()))
    lines.append(
        f"{first.n:,} samples per model; classifier accuracy {100 * first.classifier_accuracy:.2f} % on real images"
    )
    return "\n".join(line.rstrip() for line in lines)
