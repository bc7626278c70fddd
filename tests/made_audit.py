"""A made-up but realistic audit: digits without class 3, every section filled."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from dataclasses import replace
from typing import Any

from gradpivot.results import QUESTIONS, AuditRecord, Finding, judge, verdict_on

CLASSES = [str(digit) for digit in range(10)]


def picture(seed: int) -> str:
    """An 8×8 grey PNG as a data URI."""
    rows = b"".join(b"\0" + bytes((seed * 31 + 29 * x * y) % 256 for x in range(8)) for y in range(8))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(png).decode()


def roc(power: float, n: int = 160) -> dict[str, list[float]]:
    """TPR = FPR ** power on n non-members."""
    rates = [i / n for i in range(n + 1)]
    return {"fpr": rates, "tpr": [rate**power for rate in rates]}


def recovery(top: float, rate: float) -> list[float]:
    """Accuracy that comes back while fine-tuning."""
    return [top * (1 - math.exp(-rate * step)) for step in range(0, 501, 25)]


def attack(name: str, title: str, question: str, value: float, control: float | None, **changes: Any) -> Finding:
    """A judged finding with a plausible interval."""
    facts: dict[str, Any] = {
        "interval": (value - 0.04, value + 0.04), "original": 0.74, "error": 0.021, "noise": 0.015, "n": 292,
        "difference": None if control is None else value - control,
        "meaning": "Area under the ROC curve for telling forgotten records from unseen ones of the same class.",
    }  # fmt: skip
    found = Finding(name=name, title=title, question=question, value=value, control=control, **{**facts, **changes})
    return replace(found, outcome=judge(found) if found.decides else None)


def made_attacks() -> tuple[Finding, ...]:
    """Membership undetermined or fine, knowledge distinguishable, the rest intact."""
    rocs = {"audited": roc(0.9), "retrained": roc(0.98), "original": roc(0.4)}
    steps = {"x": list(range(0, 501, 25)), "x_label": "Fine-tuning steps on retained data"}
    bits = {"x": [32, 8, 4], "x_label": "Bits per weight"}
    membership = [
        attack(name, title, "membership", value, 0.505, details={"roc": rocs})
        for name, title, value in (
            ("loss_auc", "Loss attack, AUC", 0.521), ("margin_auc", "Scaled-margin attack, AUC", 0.534),
            ("entropy_auc", "Entropy attack, AUC", 0.497),
        )
    ]  # fmt: skip
    return (
        *membership,
        attack("margin_tpr", "Scaled-margin attack, TPR at 1 % FPR", "membership", 0.021, 0.011, original=0.093,
               interval=(0.004, 0.06), decides=False, note="only 36 unseen records: the rate moves in steps of 2.8 %.",
               meaning="Share of forgotten records that the attack finds when it accuses 1 % of unseen ones."),
        attack("finetune", "Fine-tuning on retained data", "knowledge", 0.231, 0.004, direction="higher",
               original=0.98, details={"curve": {**steps, "audited": recovery(0.24, 0.01),
                                                 "retrained": recovery(0.004, 0.01), "original": [0.98] * 21}},
               meaning="Accuracy on the forgotten class after 500 steps that never show it."),
        attack("quantise", "4-bit quantisation", "knowledge", 0.013, 0.0, direction="higher", original=0.95,
               details={"curve": {**bits, "audited": [0.0, 0.0, 0.013], "retrained": [0.0, 0.0, 0.0],
                                  "original": [0.98, 0.98, 0.95]}},
               meaning="Accuracy on the forgotten class after rounding the weights."),
        attack("klom", "KLoM of margins", "knowledge", 0.412, 0.203, unit="nats", original=2.31, decides=False,
               meaning="KL divergence of binned margins; biased upward for small ensembles."),
        attack("retain_accuracy", "Test accuracy on kept classes", "collateral", 0.961, 0.968, direction="lower",
               original=0.971, error=0.004, n=324, meaning="Accuracy on unseen records of the kept classes."),
        attack("exposure", "Exposure of retained records", "collateral", 0.511, None, original=0.507,
               meaning="Margin attack on retained records."),
    )  # fmt: skip


def made_sections() -> dict[str, Any]:
    """Every section the page knows."""
    shares = {"audited": [0.02, 0.1, 0.16, 0.03, 0.01, 0.3, 0.0, 0.08, 0.22, 0.08],
              "retrained": [0.0, 0.08, 0.14, 0.0, 0.0, 0.34, 0.0, 0.06, 0.26, 0.12],
              "original": [0.0, 0.0, 0.0, 0.98, 0.0, 0.01, 0.0, 0.0, 0.01, 0.0]}  # fmt: skip
    accuracy = {"audited": [0.98, 0.95, 0.97, 0.03, 0.96, 0.93, 0.99, 0.96, 0.94, 0.95],
                "retrained": [0.99, 0.96, 0.97, 0.0, 0.97, 0.97, 0.99, 0.96, 0.95, 0.96],
                "original": [0.99, 0.96, 0.97, 0.98, 0.97, 0.96, 0.99, 0.97, 0.95, 0.96]}  # fmt: skip
    answers = ({"predicted": "3", "confidence": 0.97}, {"predicted": "5", "confidence": 0.52},
               {"predicted": "8", "confidence": 0.61})  # fmt: skip
    return {
        "neighbours": {"classes": CLASSES, **shares},
        "classes": [{"class": digit, "n": 36, "forgotten": digit == 3,
                     **{role: values[digit] for role, values in accuracy.items()}} for digit in range(10)],
        "records": [{"index": 40 + 7 * i, "label": "3", "confidence": 0.6 - 0.01 * i, "margin": 1.4 - 0.1 * i,
                     "score": 2.9 - 0.1 * i, "image": picture(i)} for i in range(30)],
        "harmed": [{"index": 11 * i, "label": "5", "before": 0.99, "after": 0.1 + 0.05 * i, "predicted": "8",
                    "image": picture(50 + i)} for i in range(10)],
        "examples": [{"index": 40 + 7 * i, "label": "3", "image": picture(i),
                      **dict(zip(("original", "audited", "retrained"), answers, strict=True))} for i in range(6)],
        "calibration": {"audited": 0.031, "retrained": 0.022, "original": 0.019},
    }  # fmt: skip


def made_audit(**changes: Any) -> AuditRecord:
    """The audit, with parts replaced."""
    attacks = changes.get("attacks", made_attacks())
    values: dict[str, Any] = {
        "verdicts": {name: verdict_on(name, attacks) for name in QUESTIONS},
        "attacks": attacks,
        "level": "standard",
        "problem": {"name": "digits", "kind": "class", "classes": [3], "n_forget": 146,
                    "n_retain": 1291, "n_test": 360},
        "not_tested": {"U-LiRA": "needs level full and the method under audit",
                       "RMIA": "needs at least one reference model; pass references="},
        "sections": made_sections(),
        "provenance": {
            "command": "gradpivot audit runs/digits-cup --level standard --out audit",
            "hashes": {"model": "5f3c9a0d" * 8, "original": "aa01bb02" * 8, "split": "0c1d2e3f" * 8},
            "seed": 0, "method": {"method": "cup", "gamma": 1.0},
            "environment": {"machine": "x86_64, 2 cores", "threads": 1, "date": "2026-11-15T20:35:00Z",
                            "packages": {"gradpivot": "0.2.0", "torch": "2.13.0"}},
        },
    }  # fmt: skip
    return AuditRecord(**{**values, **changes})
