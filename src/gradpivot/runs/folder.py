"""Run folders: settings, environment, split, scores, history and weights, enough to repeat the run."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gradpivot.errors import GradPivotError
from gradpivot.runtime import checked, describe_error, parse_json, parse_yaml, replacing, write_text

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.evaluate import Scored
    from gradpivot.results import Comparison
    from gradpivot.runs.run import Result
    from gradpivot.runs.training import Trained

__all__ = ["finished_run", "read_config", "read_metrics", "read_run", "staged", "write_run", "write_training"]

RUN_SCHEMA = "gradpivot.run/1"
TRAINING_SCHEMA = "gradpivot.training/1"
_STAGING = ".new"


def finished_run(folder: Path, request: str) -> dict[str, Any] | None:
    """The metrics of the finished run in a folder; None if it has none.

    Args:
        folder: The run folder.
        request: What the run was asked for, as given to :func:`write_run`.

    Raises:
        GradPivotError: If the folder holds a run with another request.
    """
    if not (folder / "metrics.json").exists():
        return None
    try:
        found = parse_json((folder / "metrics.json").read_text(encoding="utf-8"))
        same, missed = found.get("request") == request, found.get("missed")
    except (OSError, ValueError, AttributeError):
        found, same, missed = {}, False, None
    if not same:
        raise GradPivotError(
            f"{folder} already holds a finished run with other settings{f' ({missed})' if missed else ''}; choose "
            f"another folder with --out, or pass --overwrite"
        )
    # A kill at the end of staged() leaves it.
    shutil.rmtree(folder / _STAGING, ignore_errors=True)
    metrics: dict[str, Any] = found
    return metrics


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Yield an empty folder for a run's files, which move to ``folder`` when the block succeeds.

    Until then an earlier run in ``folder`` is intact. It loses its ``metrics.json`` first and the new one comes last,
    so the files of two runs never pass as one.
    """
    new = folder / _STAGING
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
        (folder / "metrics.json").unlink(missing_ok=True)
        for path in sorted(new.iterdir(), key=lambda path: path.name == "metrics.json"):
            path.replace(folder / path.name)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def write_run(
    folder: Path,
    config: Mapping[str, Any],
    split: ForgetSplit,
    result: Result,
    original: Scored,
    request: str | None = None,
) -> None:
    """Write a run folder. ``metrics.json`` is written last, so a folder that has it is complete.

    Args:
        folder: Folder to write.
        config: Settings to store.
        split: The data to forget and to retain.
        result: The result of the run.
        original: The scores of the original model.
        request: Identifies what the run was asked for, for :func:`finished_run`.
    """
    from gradpivot.models import save_weights

    write_text(folder / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False))
    write_text(folder / "environment.json", _json(result.provenance["environment"]))
    split.save(folder / "split.json")
    _write_history(folder / "history.csv", result.history)
    facts = {"method": result.method.label, "split": split.hash, "diverged": result.diverged}
    save_weights(result.model, folder / "model.safetensors", facts)
    if result.pictures is not None:
        result.pictures.save(folder / "samples.png")
    metrics = {
        "schema": RUN_SCHEMA,
        "request": request,
        "label": result.method.label,
        "scores": result.scores.to_dict(),
        "original": original.to_dict(),
        "asked_ua": result.asked_ua,
        "missed": result.missed,
        "seconds": result.seconds,
        "diverged": result.diverged,
        **({} if result.already_forgotten is None else {"already_forgotten": result.already_forgotten.to_dict()}),
        "provenance": result.provenance,
    }
    write_text(folder / "metrics.json", _json(metrics))


def write_training(folder: Path, config: Mapping[str, Any], trained: Trained, request: str | None = None) -> None:
    """Write the folder of a training run, as :func:`write_run` does; ``metrics.json`` is written last."""
    from gradpivot.models import save_weights

    facts = {name: value for name, value in trained.provenance.items() if name != "environment"}
    write_text(folder / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False))
    write_text(folder / "environment.json", _json(trained.provenance["environment"]))
    save_weights(
        trained.model,
        folder / "model.safetensors",
        {**facts, "test_accuracy": trained.test_accuracy, "test_loss": trained.test_loss, "diverged": trained.diverged},
    )
    metrics = {
        "schema": TRAINING_SCHEMA,
        "request": request,
        "label": trained.recipe.label,
        "test_accuracy": trained.test_accuracy,
        "test_loss": trained.test_loss,
        "epochs": [dataclasses.asdict(epoch) for epoch in trained.epochs],
        "seconds": trained.seconds,
        "evaluation_seconds": trained.evaluation_seconds,
        "images_per_second": trained.images_per_second,
        "diverged": trained.diverged,
        "provenance": trained.provenance,
    }
    write_text(folder / "metrics.json", _json(metrics))


def read_config(folder: Path) -> dict[str, Any]:
    """Read the settings of a run.

    Raises:
        GradPivotError: If it is not a run folder.
    """
    try:
        config = parse_yaml((folder / "config.yaml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GradPivotError(f"{folder} is not a run folder: it has no config.yaml") from None
    except ValueError as error:
        raise GradPivotError(f"{folder}/config.yaml is damaged ({error})") from None
    if not isinstance(config, dict):
        raise GradPivotError(f"{folder}/config.yaml is damaged: it contains no settings")
    return config


def read_metrics(folder: Path) -> dict[str, Any]:
    """Read ``metrics.json``: ``scores``, ``diverged``, ….

    Raises:
        GradPivotError: If the file is missing or damaged, or has no scores.
    """
    try:
        metrics: dict[str, Any] = parse_json((folder / "metrics.json").read_text(encoding="utf-8"))
        if metrics["schema"] == TRAINING_SCHEMA:
            raise GradPivotError(
                f"{folder} is a training run; repeat it with gradpivot train --config {folder}/config.yaml --out FOLDER"
            )
        if not isinstance(metrics["scores"], dict):
            raise GradPivotError(f"{folder} has no scores: an old version saved none for generators; repeat the run")
        _ = metrics["diverged"]
    except FileNotFoundError:
        raise GradPivotError(f"{folder} has no metrics.json: the run did not finish") from None
    except (ValueError, KeyError, TypeError) as error:
        raise GradPivotError(f"{folder}/metrics.json is damaged ({error})") from None
    return metrics


def read_run(folder: Path) -> Comparison:
    """Read a run folder as a comparison of the new model with the original.

    Raises:
        GradPivotError: If it is not the folder of a finished run, or is damaged.
    """
    metrics, config = read_metrics(folder), read_config(folder)
    try:
        return _comparison(folder, metrics, config)
    except GradPivotError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, csv.Error) as error:
        raise GradPivotError(f"the run in {folder} is damaged ({describe_error(error)}); repeat it") from None


def _comparison(folder: Path, metrics: Mapping[str, Any], config: Mapping[str, Any]) -> Comparison:
    from gradpivot.results import Comparison, Frontier, Point, read_scores

    split, label = metrics["provenance"]["split"], metrics["label"]
    settings = metrics["provenance"].get("method", {"method": config["method"]})
    if metrics["diverged"] is not None:
        checked(metrics["diverged"], step=int, reason=str)
    knob = _knob_of(settings)
    point = Point(
        label=label,
        settings=settings,
        knob=settings[knob] if knob else None,
        scores=read_scores(metrics["scores"]),
        seconds=metrics["seconds"],
        diverged=metrics["diverged"],
        history=_read_history(folder / "history.csv"),
    )
    return Comparison(
        title=f"Forgetting {_describe_forget_set(split)} of {config['problem']}",
        problem={"name": config["problem"], **split},
        original=Point(label="Original", settings={}, scores=read_scores(metrics["original"])),
        frontiers=[
            Frontier(
                name=label.partition("(")[0], method=config["method"], points=[point], knob=knob, kind=split["kind"]
            )
        ],
        provenance=metrics["provenance"],
    )


def _knob_of(settings: Mapping[str, Any]) -> str | None:
    """The setting that traces the method's frontier; None if it has none, or is the user's own and not imported yet."""
    from gradpivot.methods import list_methods, make_method

    # Looking at a run must not execute the module that it names.
    if settings.get("method") not in list_methods():
        return None
    try:
        return make_method(settings).active_knob
    except GradPivotError:
        return None


def _describe_forget_set(split: Mapping[str, Any]) -> str:
    classes = split["classes"] if split["kind"] == "class" else ()
    if not classes:
        return f"{split['n_forget']:,} samples"
    return f"class{'es' if len(classes) > 1 else ''} {', '.join(map(str, classes))}"


def _read_history(path: Path) -> dict[str, list[float | None]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [_number(row[name]) for row in rows] for name in (rows[0] if rows else ())}


def _number(text: str) -> float | None:
    """Parse a cell of the history: a number, a flag or empty."""
    flags = {"": None, "None": None, "True": 1.0, "False": 0.0}
    return flags[text] if text in flags else float(text)


def _write_history(path: Path, history: Mapping[str, list[Any]]) -> None:
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(history)
        writer.writerows(zip(*history.values(), strict=True))


def _json(content: Any) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
