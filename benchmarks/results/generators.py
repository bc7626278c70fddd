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

__all__ = ["PAGES", "headline"]


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
        "seeds": _seeds(records), "about": records.about("ddpm"), "table": markdown(heads, rows),
        "rho": "–" if rho is None else f"{rho:.3f}", "gammas": str(len(cup)),
        "drop": percent(max(before - after for before, after in pairwise(still)), 0),
        "retrained": percent(1 - _scores(fixed["retrained"]).ua, 1),
        "original_kept": percent(_scores(fixed["original"]).ra, 1),
        "least_kept": percent(min(_scores(r).ra for r in cup), 1),
    }  # fmt: skip


def _seeds(records: Records) -> str:
    """CUP at γ = 0.9 beside SalUn over several seeds, and whether the digit comes back; empty if it was not run."""
    if not records.has("ddpm-seeds.json"):
        return ""
    found, means = records.data("ddpm-seeds"), seed_means(records)
    heads = ("model", "seed", "3s still recognised %", "other digits recognised %", "Fréchet distance", "seconds")
    table = markdown(
        heads,
        ((row["model"], "–" if row["model"] == "original" else row["seed"], percent(row["left"], 1),
          percent(row["kept"], 2), f"{row['fd']:.2f}", f"{row['seconds']:.0f}") for row in found["rows"]),
    )  # fmt: skip
    back = markdown(
        ("model", "embedding of the label, 60 steps %", "all weights, 20 steps %"),
        ((row["model"], percent(row["label"], 0), percent(row["all"], 0)) for row in means),
    )
    return f"""
## Several seeds of unlearning

{records.about("ddpm-seeds")} 500 samples of the 3 and {found["samples"]} of every other digit, the same original.

{table}

A copy of each model is trained on 20 real images of the 3: only the embedding of its label, or all weights.
Share of 100 samples recognised as a 3, means over the seeds:

{back}
"""


def seed_means(records: Records) -> list[dict[str, Any]]:
    """Every model of the runs with several seeds, with its means over them."""
    rows = [{**row, **row["relearned"]} for row in records.data("ddpm-seeds")["rows"]]
    found = []
    for name in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == name]
        keys = ("left", "kept", "fd", "seconds", "label", "all")
        found.append({"model": name, **{key: sum(row[key] for row in mine) / len(mine) for key in keys}})
    return found


def headline(records: Records) -> str:
    """The original, CUP at γ = 0.9 and the retrained model."""
    runs = records.runs("ddpm")
    chosen = {
        "original": next(r for r in runs if r.role == "original"),
        "CUP, γ = 0.9": next(r for r in runs if r.series == "CUP" and r.point.knob == 0.9),
        "retrained": next(r for r in runs if r.role == "retrained"),
    }
    heads = ("model", "3s still recognised %", "other digits recognised %", "Fréchet distance", "seconds")
    return markdown(heads, ((name, *_drawn(r), f"{r.point.seconds:.0f}") for name, r in chosen.items()))


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
