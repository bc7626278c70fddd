"""The paper's formulas, transcribed line by line in 50-digit arithmetic: the oracle for the geometry tests."""

from __future__ import annotations

from collections.abc import Sequence

from mpmath import mp, mpf

mp.dps = 50

Vector = list[mpf]


def vector(values: Sequence[float]) -> Vector:
    return [mpf(float(v)) for v in values]


def dot(u: Vector, v: Vector) -> mpf:
    return mp.fsum(a * b for a, b in zip(u, v, strict=True))


def norm(u: Vector) -> mpf:
    return mp.sqrt(dot(u, u))


def combined(a: mpf | float, u: Vector, b: mpf | float, v: Vector) -> Vector:
    return [mpf(a) * x + mpf(b) * y for x, y in zip(u, v, strict=True)]


def anchors(f: Vector, r: Vector, w_f: float = 1, w_r: float = 1) -> tuple[Vector, Vector, Vector]:
    """T, the fidelity anchor and the efficacy anchor (eqs. 4 and 5)."""
    total = combined(w_f, f, w_r, r)
    fidelity = combined(1, total, -dot(total, f) / dot(f, f), f)
    efficacy = combined(1, total, -dot(total, r) / dot(r, r), r)
    return total, fidelity, efficacy


def phi(fidelity: Vector, efficacy: Vector) -> mpf:
    cosine = dot(fidelity, efficacy) / norm(fidelity) / norm(efficacy)
    return mp.acos(max(mpf(-1), min(mpf(1), cosine)))


def cup_gradient(f: Vector, r: Vector, gamma: float, w_f: float = 1, w_r: float = 1) -> Vector:
    """g_CUP of eqs. 6 and 7."""
    total, fidelity, efficacy = anchors(f, r, w_f, w_r)
    angle = mpf(gamma) * phi(fidelity, efficacy)
    direction = combined(mp.cos(angle) / norm(fidelity), fidelity, mp.sin(angle) / norm(f), f)
    return [norm(total) * x for x in direction]
