"""A digit taken out of a VAE and of a diffusion model, and the paper's toy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from benchmarks.results.page import Page, Records
from benchmarks.results.tables import markdown, percent

from gradpivot.evaluate import GenerationScores
from gradpivot.results import Record, spearman

__all__ = ["PAGES", "seed_means"]


def _vae_table(summary: Mapping[str, Any]) -> str:
    forgotten = summary["forgotten"]
    heads = ("model", f"map called {forgotten} %", "−ELBO of the others, nats", f"−ELBO of the {forgotten}s, nats",
             "Fréchet distance")  # fmt: skip
    rows = []
    for row in summary["models"]:
        if row["diverged"]:
            rows.append((row["name"], "diverged", "", "", ""))
            continue
        scores = GenerationScores.from_dict(row["scores"])
        low, high = scores.class_interval(forgotten)
        share = f"{percent(scores.share_called(forgotten), 1)} ({percent(low, 1)} to {percent(high, 1)})"
        nats = (f"{row['others_nats']:.1f}", f"{row['forgotten_nats']:.1f}")
        rows.append((row["name"], share, *nats, f"{scores.frechet[0].value:.1f}"))
    return markdown(heads, rows)


def _vae(records: Records) -> dict[str, str]:
    clean, paper = records.data("vae"), records.data("vae-paper")
    called = {row["name"]: _called(row, clean["forgotten"]) for row in clean["models"] if not row["diverged"]}
    nats = {row["name"]: row["others_nats"] for row in clean["models"] if not row["diverged"]}
    last = paper["models"][-2]
    walked = [row for row in clean["models"] if row["gamma"] is not None and not row["diverged"]]
    seconds = [row["seconds"] for row in walked]
    return {
        "about": records.about("vae"),
        "table": _vae_table(clean),
        "paper_table": _vae_table(paper),
        "rho": f"{clean['spearman']:.2f}",
        "original": percent(called["Original"], 1),
        "retrained": percent(called["Retrained"], 1),
        "end": percent(_called(walked[-1], clean["forgotten"]), 1),
        "end_gamma": f"{walked[-1]['gamma']:g}",
        "start_nats": f"{nats['Original']:.1f}",
        "end_nats": f"{walked[-1]['others_nats']:.1f}",
        "paper_end": percent(_called(last, paper["forgotten"]), 1) if not last["diverged"] else "–",
        "paper_end_gamma": f"{last['gamma']:g}",
        "time": percent(max(seconds) / clean["models"][-1]["seconds"], 0),
    }


def _called(row: Mapping[str, Any], forgotten: int) -> float:
    return GenerationScores.from_dict(row["scores"]).share_called(forgotten)


def _toy(records: Records) -> dict[str, str]:
    data = records.data("toy")
    classes = range(len(data["accuracy"]["Original"]))
    accuracy = markdown(
        ("test accuracy %", *(f"class {k}" for k in classes)),
        ((name, *(percent(value, 1) for value in values)) for name, values in data["accuracy"].items()),
    )
    methods = data["over_seeds"]["methods"]
    seeds = markdown(
        ("", "median drop of the worst other class, points", "median accuracy on class 2 %",
         "seeds with a drop of at most 2 points and at most 5 % left"),
        (
            (name, percent(median(found["worst_drop"]), 1), percent(median(found["left"]), 1), _within(found))
            for name, found in methods.items()
        ),
    )  # fmt: skip
    cup = next(found for name, found in methods.items() if name.startswith("CUP"))
    return {
        "about": records.about("toy"), "accuracy": accuracy, "seeds": seeds,
        "n": str(data["over_seeds"]["seeds"]), "cup_within": str(_within(cup)),
    }  # fmt: skip


def _within(found: Mapping[str, Sequence[float]]) -> int:
    pairs = zip(found["worst_drop"], found["left"], strict=True)
    return sum(drop <= 0.02 and left <= 0.05 for drop, left in pairs)


def _ddpm(records: Records) -> dict[str, str]:
    found = records.runs("ddpm")
    runs = sorted((r for r in found if r.role == "run"), key=lambda r: (r.series != "CUP", r.series, r.point.knob or 0))
    fixed = {r.role: r for r in found if r.role != "run"}
    cup = [r for r in runs if r.series == "CUP"]
    still = [1 - _scores(r).ua for r in cup]
    heads = ("model", "3s still recognised %", "other digits recognised %", "Fréchet distance", "time / retraining %")
    retrain = fixed["retrained"].point.seconds
    rows = [
        ("original", *_drawn(fixed["original"]), "–"),
        *((f"{r.series}, {_setting(r)}", *_drawn(r), percent(r.point.seconds / retrain, 0)) for r in runs),
        ("retrained", *_drawn(fixed["retrained"]), "100"),
    ]
    rho = spearman([r.point.knob or 0.0 for r in cup], still)
    return {
        **_seeds(records), "about": records.about("ddpm"), "table": markdown(heads, rows),
        "rho": "–" if rho is None else f"{rho:.3f}", "gammas": str(len(cup)),
        "drop": percent(max(before - after for before, after in pairwise(still)), 0),
        "retrained": percent(1 - _scores(fixed["retrained"]).ua, 1),
        "original_kept": percent(_scores(fixed["original"]).ra, 1),
        "least_kept": percent(min(_scores(r).ra for r in cup), 1),
    }  # fmt: skip


def _seeds(records: Records) -> dict[str, str]:
    """CUP at γ = 0.9 beside SalUn, seed by seed, with more samples."""
    found = records.data("ddpm-seeds")
    rows = found["rows"]
    heads = ("model", "seed", "3s still recognised %", "other digits recognised %", "Fréchet distance", "seconds")
    table = markdown(
        heads,
        ((row["model"], "–" if row["model"] == "original" else row["seed"], percent(row["left"], 1),
          percent(row["kept"], 2), f"{row['fd']:.2f}", f"{row['seconds']:.0f}") for row in rows),
    )  # fmt: skip
    rows = seed_means(records)
    named = {"cup": "CUP, γ = 0.9", "all": "CUP, γ = 0.9, all weights", "salun": "SalUn, saliency = 0.5"}
    means = {key: row for key, name in named.items() for row in rows if row["model"] == name}
    back = markdown(
        ("model", "embedding of the label, 60 steps %", "all weights, 20 steps %"),
        ((row["model"], percent(row["label"], 0), percent(row["all"], 0)) for row in rows),
    )
    shown = {
        f"{key}_{name}": value
        for key, row in means.items()
        for name, value in (
            ("left", percent(row["left"], 1)), ("kept", percent(row["kept"], 2)), ("fd", f"{row['fd']:.2f}"),
            ("seconds", f"{row['seconds']:.0f}"), ("label", percent(row["label"], 0)), ("back", percent(row["all"], 0)),
        )
    }  # fmt: skip
    return {
        **shown,
        "back_table": back,
        "seeds_about": records.about("ddpm-seeds"),
        "seeds_table": table,
        "samples": str(found["samples"]),
    }


def seed_means(records: Records) -> list[dict[str, Any]]:
    """Every model of the runs with several seeds, with its means over them."""
    rows = records.data("ddpm-seeds")["rows"]
    names = list(dict.fromkeys(row["model"] for row in rows))
    found = []
    for name in names:
        mine = [row for row in rows if row["model"] == name]
        flat = [{**row, **row["relearned"]} for row in mine]
        keys = ("left", "kept", "fd", "seconds", "label", "all")
        found.append({"model": name, **{key: sum(row[key] for row in flat) / len(flat) for key in keys}})
    return found


def _setting(record: Record) -> str:
    name, symbol = {"cup": ("gamma", "γ"), "salun": ("saliency", "saliency"), "sa": ("penalty", "penalty")}[
        record.method
    ]
    return f"{symbol} = {record.point.settings[name]:g}"


def _scores(record: Record) -> GenerationScores:
    scores = record.point.scores
    assert isinstance(scores, GenerationScores)
    return scores


def _drawn(record: Record) -> tuple[str, str, str]:
    scores = _scores(record)
    low, high = scores.interval("ua")
    left = f"{percent(1 - scores.ua, 1)} ({percent(1 - high, 1)} to {percent(1 - low, 1)})"
    return left, percent(scores.ra, 1), f"{scores.frechet[0].value:.1f}"


PAGES = (Page(name="toy", values=_toy), Page(name="vae", values=_vae), Page(name="ddpm", values=_ddpm))
