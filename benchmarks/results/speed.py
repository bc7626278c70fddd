"""Speed: ratios measured within one run each, with the claims they back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.results.page import Page, Records
from benchmarks.results.tables import markdown

__all__ = ["PAGE"]

SCRIPTS = ("ratios", "step", "training", "evaluation", "membership", "parallel", "ddpm")


def _claims(data: Mapping[str, Any]) -> str:
    step, training = data["step"], data["training"]
    # A step of the smallest network takes milliseconds; the claim is about the others.
    loop = max(found["ratio"] for name, found in training.items() if "8×8" not in name or len(training) == 1)
    rows = [
        ("CUP step / WS step with `Pivot.backward`, ResNet-18", f"{step['cup_to_ws']:.2f}", "≤ 1.05"),
        ("CUP step / WS step in the loop, γ as an angle", f"{step['loop_cup_to_ws']:.2f}", "≤ 1.05"),
        ("Gram matrix and combination / WS step", f"{step['own_work_to_ws']:.3f}", "≤ 0.05"),
        ("CUP step / TorchJD PCGrad step", f"{step['cup_to_torchjd_pcgrad']:.2f}", "< 1"),
        ("training step of the loop / bare PyTorch", f"{loop:.2f}", "≤ 1.05"),
        ("evaluation in one pass / one pass per metric", f"{data['evaluation']['ratio']:.2f}", "≤ 0.5"),
        ("diffusion: CUP step / WS step", f"{data['ddpm']['ratios']['CUP step / WS step']:.2f}", "≤ 1.05"),
        ("membership attack: scikit-learn / ours", f"{data['membership']['least_ratio']:.0f}", "≥ 10"),
    ]
    return markdown(("ratio of times", "measured", "claim"), rows)


_BARS = {
    "ResNet-18: CUP step by degree / WS step": "≤ 1.08",
    "ResNet-18: CUP step by angle / WS step": "≤ 1.03",
    "digits CNN: CUP step by degree / bare WS step": "≤ 1.3",
    "MLP 64-64-10: 32 models together / one by one, models a second on one core": "≥ 4",
    "MLP 64-64-10: 64 models together / one by one, models a second on ": "≥ 4",
}
"""Claims by the start of the ratio's name, which may end with the number of cores."""
_DIGITS = "digits CNN: CUP step by degree / bare WS step"


def _prices(data: Mapping[str, Any]) -> str:
    rows = [
        (name, f"{found['ratio']:.2f}", "{:.2f} to {:.2f}".format(*found["spread"]),
         next((bar for start, bar in _BARS.items() if name.startswith(start)), "–"))
        for name, found in data["ratios"].items()
    ]  # fmt: skip
    return markdown(("ratio", "measured", "spread", "claim"), rows)


def _growth(data: Mapping[str, Any]) -> str:
    rows = [
        (name, ", ".join(map(str, found["sizes"])), ", ".join(f"{cost:.3g}" for cost in found["seconds"]),
         f"{found['slope']:.2f}")
        for name, found in data.get("growth", {}).items()
    ]  # fmt: skip
    return markdown(("cost", "sizes", "seconds", "slope"), rows)


def _values(records: Records) -> dict[str, str]:
    data = {name: records.data(f"speed-{name}") for name in SCRIPTS}
    parallel = markdown(
        ("model", "one process, s per step", "two processes, s per step", "efficiency %"),
        (
            (
                row["model"],
                *(f"{row['seconds'][name]:.3f}" for name in ("one", "two")),
                f"{100 * row['efficiency']:.0f}",
            )
            for row in data["parallel"]["models"]
        ),
    )
    return {
        "about": records.about("speed-step"),
        "claims": _claims(data),
        "about_ratios": records.about("speed-ratios"),
        "prices": _prices(data["ratios"]),
        "digits": "met" if data["ratios"]["ratios"][_DIGITS]["ratio"] <= 1.3 else "not met",
        "growth": _growth(data["ratios"]),
        "parallel": parallel,
        "attack_error": f"{data['membership']['largest_difference_points']:.2f}",
        "peak": f"{data['step']['peak_mb']['CUP'] - data['step']['peak_mb']['WS']:+.0f}",
        "weights": f"{2 * data['step']['weights_mb']:.0f}",
    }


PAGE = Page(name="benchmarks", values=_values)
