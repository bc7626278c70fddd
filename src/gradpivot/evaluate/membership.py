"""Membership inference: does the forget set look like data that the model never saw?

An attacker sees the confidence p(true label | x) of every sample, learns to tell members (retain
samples) from non-members (test samples), and judges the forget samples:

    MIA = |{x in forget : judged non-member}| / |forget|.

Two attackers are here, and a report must always say which one it used.

- `svc`, the paper's: `SVC(C=3, gamma="auto", kernel="rbf")` on the one confidence. It is what Jia
  et al. 2023 ("Model Sparsity Can Simplify Machine Unlearning") and Fan et al. 2024 ("SalUn") use.
  It need not be monotone, and where members and non-members look alike it is ill-posed: it may call
  a confidence of 0 "member", and another draw of members turns its verdict round. So it counts as
  *undetermined* when its own training accuracy is below `DETERMINED`.
- `threshold`, the clean one: the single cut with the best balanced accuracy, with "low confidence =
  non-member" built in. It is monotone, exact and takes O(n log n).

All shares and accuracies are fractions in [0, 1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "DETERMINED",
    "MembershipScores",
    "SvcVerdict",
    "ThresholdVerdict",
    "membership_attack",
    "svc_attack",
    "threshold_attack",
]

DETERMINED = 0.55
"""Least training accuracy at which the SVC's verdict means anything."""

PENALTY = 3.0
"""The SVC's C."""

# Confidences of one class within 1e-6 of each other count as one point, at their mean. The kernel
# cannot tell them apart, and thousands of separate barriers in one place would stall the solver.
CELLS = 2**20
# On [0, 1], 14 terms give exp(-(x - y)^2) to 1e-15: see `_features`.
RANK = 14
# Relative duality gap at which the interior-point method stops. LIBSVM's own default tolerance
# leaves about 1e-3, so this is far below any difference that it could show.
GAP = 1e-10
# What is still good enough where rounding keeps the gap from shrinking to `GAP`.
LOOSE_GAP = 1e-7
# 12 to 25 iterations are usual; crowded sets want up to about 80.
ITERATIONS = 150
# Share of the step to the boundary that is taken.
DAMPING = 0.99
# LIBSVM keeps its kernel in float32, where exp(-d^2) has hardly a digit left of a distance d below
# 1e-3. Where all training points are nearer than that, its verdict is made of that rounding, and
# only LIBSVM itself can repeat it.
NARROW = 1e-3

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class SvcVerdict(NamedTuple):
    """What the SVC says: `share` of forget judged non-member, and its own training `accuracy`."""

    share: float
    accuracy: float

    @property
    def determined(self) -> bool:
        """Whether the SVC tells members from non-members well enough to be believed."""
        return self.accuracy >= DETERMINED


class ThresholdVerdict(NamedTuple):
    """What the cut says: `share` of forget below `cut`, and the cut's balanced `accuracy`."""

    share: float
    cut: float
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class MembershipScores:
    """Both attackers' verdicts on one model; shares and accuracies are fractions.

    Attributes:
        svc: Share of forget that the SVC judges non-member.
        svc_accuracy: The SVC's accuracy on its own training points.
        svc_determined: Whether that accuracy reaches `DETERMINED`. The rule is meant for about as
            many members as non-members: with a majority above 55 % it holds for any SVC.
        threshold: Share of forget that the cut judges non-member.
        threshold_cut: The cut; a confidence below it is judged non-member.
        threshold_accuracy: The cut's balanced accuracy on members and non-members, at least 0.5.
        n_members: Number of members.
        n_nonmembers: Number of non-members.
        n_forget: Number of forget samples.
    """

    svc: float
    svc_accuracy: float
    svc_determined: bool
    threshold: float
    threshold_cut: float
    threshold_accuracy: float
    n_members: int
    n_nonmembers: int
    n_forget: int


def membership_attack(
    members: ArrayLike,
    nonmembers: ArrayLike,
    forget: ArrayLike,
) -> MembershipScores:
    """Run both attacks on true-label confidences.

    Args:
        members: Confidences of retain samples; the literature takes as many as there are
            non-members.
        nonmembers: Confidences of test samples.
        forget: Confidences of the forget samples.

    Returns:
        Both verdicts and the sizes; see `svc_attack` and `threshold_attack`.

    Raises:
        ValueError: If an array is empty, not 1-D, or holds a value that is no probability.
    """
    known, unknown, asked = _checked(members, nonmembers, forget)
    svc = svc_attack(known, unknown, asked)
    threshold = threshold_attack(known, unknown, asked)
    return MembershipScores(
        svc=svc.share,
        svc_accuracy=svc.accuracy,
        svc_determined=svc.determined,
        threshold=threshold.share,
        threshold_cut=threshold.cut,
        threshold_accuracy=threshold.accuracy,
        n_members=known.size,
        n_nonmembers=unknown.size,
        n_forget=asked.size,
    )


def svc_attack(
    members: ArrayLike, nonmembers: ArrayLike, forget: ArrayLike, *, exact_below: int = 4000
) -> SvcVerdict:
    """Judge forget samples by `SVC(C=3, gamma="auto", kernel="rbf")`, the attack of the papers.

    The SVC labels members +1 and non-members -1, and minimises

        1/2 |w|^2 + C sum_i max(0, 1 - y_i (w . phi(x_i) + b)),  phi(x) . phi(y) = exp(-(x - y)^2).

    With fewer than `exact_below` training points (n = members + non-members) it is scikit-learn's,
    which takes between O(n^2) and O(n^3). From there on the same optimum comes from an
    interior-point method in the kernel's 14 numerically non-zero dimensions (after Fine and
    Scheinberg 2001, Ferris and Munson 2002), in O(14^2 n) for each of some 20 iterations. Nothing
    is subsampled, only confidences within 1e-6 of each other are merged. The result is nearer to
    the optimum than LIBSVM's at its default `tol=1e-3`: the two shares differ by what that
    tolerance leaves open. Where all training points lie within 1e-3 of each other (a model that
    says the same of everything), or the method does not converge, scikit-learn's SVC is used at
    any size.

    Args:
        members: Confidences of retain samples.
        nonmembers: Confidences of test samples.
        forget: Confidences of the forget samples.
        exact_below: Number of training points from which the fast route is taken; 0 takes it
            always.

    Returns:
        The share of forget judged non-member, and the SVC's accuracy on its training points.

    Raises:
        ValueError: If an array is empty, not 1-D, or holds a value that is no probability.

    References:
        Jia et al., "Model Sparsity Can Simplify Machine Unlearning", NeurIPS 2023.
        Fan et al., "SalUn", ICLR 2024.
        Fine and Scheinberg, "Efficient SVM Training Using Low-Rank Kernel Representations",
        JMLR 2, 2001. Ferris and Munson, "Interior-Point Methods for Massive Support Vector
        Machines", SIAM J. Optim. 13, 2002.
    """
    known, unknown, asked = _checked(members, nonmembers, forget)
    trained = np.concatenate([known, unknown])
    if trained.size < exact_below or np.ptp(trained) < NARROW:
        return _exact_svc(known, unknown, asked)
    plane = _separate(known, unknown)
    if plane is None:
        return _exact_svc(known, unknown, asked)
    hits = (plane.score(known) > 0).sum() + (plane.score(unknown) <= 0).sum()
    return SvcVerdict(float((plane.score(asked) <= 0).mean()), float(hits / trained.size))


def threshold_attack(
    members: ArrayLike,
    nonmembers: ArrayLike,
    forget: ArrayLike,
) -> ThresholdVerdict:
    """Judge forget samples by the best single cut: confidence < cut means non-member.

    The cut maximises the balanced accuracy

        1/2 (share of non-members below the cut + share of members not below it)

    over all cuts, in O(n log n). A cut lies half-way between neighbouring distinct values of
    members and non-members together. Of equally good cuts the lowest is taken, which judges the
    fewest samples non-member: a tie never raises the score. The lowest of all is the lowest
    confidence seen: only what lies below everything known is judged non-member, at a balanced
    accuracy of 1/2. It is what remains where no cut beats chance: where all confidences are equal,
    where the two sets are equal, and where members are the *less* confident ones. A forget set
    whose confidences are gone is then still seen to be unlike any member.

    For given members and non-members the verdict is monotone: lower confidences of the forget
    samples never lower the share.

    Args:
        members: Confidences of retain samples.
        nonmembers: Confidences of test samples.
        forget: Confidences of the forget samples.

    Returns:
        The share of forget below the cut, the cut, and its balanced accuracy.

    Raises:
        ValueError: If an array is empty, not 1-D, or holds a value that is no probability.
    """
    known, unknown, asked = _checked(members, nonmembers, forget)
    values = np.unique(np.concatenate([known, unknown]))
    # Counts strictly below each value: what a cut just under that value judges non-member.
    found = np.searchsorted(np.sort(unknown), values)
    lost = np.searchsorted(np.sort(known), values)
    # Integers, so that equally good cuts compare equal; argmax takes the first, the lowest.
    gain = found * known.size - lost * unknown.size
    best = int(np.argmax(gain))
    cut = float(values[0]) if best == 0 else _between(values[best - 1], values[best])
    accuracy = 0.5 + int(gain[best]) / (2 * known.size * unknown.size)
    return ThresholdVerdict(float((asked < cut).mean()), cut, accuracy)


def _between(low: float, high: float) -> float:
    """Return the middle of two distinct floats, or `high` where none lies between them."""
    middle = low + (high - low) / 2
    return float(middle if middle > low else high)


def _checked(
    members: ArrayLike,
    nonmembers: ArrayLike,
    forget: ArrayLike,
) -> tuple[Vector, Vector, Vector]:
    return (
        _confidences("members", members),
        _confidences("nonmembers", nonmembers),
        _confidences("forget", forget),
    )


def _confidences(name: str, values: ArrayLike) -> Vector:
    """Return `values` as a float64 vector of probabilities, or say what is wrong with them."""
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1:
        raise ValueError(
            f"{name} has shape {vector.shape}, must be 1-D: pass one true-label confidence per "
            f"sample, such as probabilities[range(n), labels]"
        )
    if vector.size == 0:
        raise ValueError(f"{name} is empty: pass at least one confidence")
    wrong = np.flatnonzero(~((vector >= 0) & (vector <= 1)))
    if wrong.size:
        at = wrong[0]
        raise ValueError(
            f"{name}[{at}] is {vector[at]}, must be in [0, 1]: pass softmax probabilities, no "
            f"logits, losses or percentages, and score a model with NaN outputs as diverged"
        )
    return vector


def _exact_svc(members: Vector, nonmembers: Vector, forget: Vector) -> SvcVerdict:
    """Fit and ask scikit-learn's SVC, as the papers do."""
    # Imported here, so that importing the package costs nothing of scikit-learn.
    from sklearn.svm import SVC

    attack: Any = SVC(C=PENALTY, gamma="auto", kernel="rbf")
    points = np.concatenate([members, nonmembers])[:, None]
    labels = np.repeat([1, 0], [members.size, nonmembers.size])
    attack.fit(points, labels)
    judged = attack.predict(forget[:, None])
    return SvcVerdict(float((judged == 0).mean()), float(attack.score(points, labels)))


# ---- The same SVC in 14 dimensions --------------------------------------------------------------


@dataclass(frozen=True)
class _Plane:
    """A separating plane in feature space: score(x) = weights . phi(x) + bias."""

    weights: Vector
    bias: float

    def score(self, points: Vector) -> Vector:
        scores: Vector = _features(points) @ self.weights + self.bias
        return scores


def _features(points: Vector) -> Matrix:
    """Return phi(x), with phi(x) . phi(y) = exp(-(x - y)^2) to 1e-15 on [0, 1].

    With t = x - 1/2, exp(-(x - y)^2) = exp(-t^2) exp(-s^2) sum_k (2 t s)^k / k!, so that
    phi_k(x) = exp(-t^2) t^k sqrt(2^k / k!). As |2 t s| <= 1/2, what `RANK` = 14 terms leave is
    about (1/2)^14 / 14! = 7e-16.
    """
    centred = points - 0.5
    orders = np.arange(RANK)
    scales = np.sqrt([2.0**k / math.factorial(k) for k in range(RANK)])
    powers = centred[:, None] ** orders
    features: Matrix = np.exp(-(centred**2))[:, None] * powers * scales
    return features


def _separate(members: Vector, nonmembers: Vector) -> _Plane | None:
    """Return the SVC's plane, or None where the solver does not converge."""
    known, known_counts = _merged(members)
    unknown, unknown_counts = _merged(nonmembers)
    signs = np.repeat([1.0, -1.0], [known.size, unknown.size])
    features = _features(np.concatenate([known, unknown]))
    rows = np.column_stack([features, np.ones(signs.size)]) * signs[:, None]
    weights = _solve(rows, PENALTY * np.concatenate([known_counts, unknown_counts]))
    if weights is None:
        return None
    return _Plane(weights, _bias(weights, members, nonmembers))


def _merged(points: Vector) -> tuple[Vector, NDArray[np.intp]]:
    """Return the mean of each occupied cell and how many points lie in it.

    Equal points share their multiplier, so one point with the box C * count is the same program.
    """
    cells = np.floor(points * CELLS)
    _, cell, counts = np.unique(cells, return_inverse=True, return_counts=True)
    return np.bincount(cell, weights=points) / counts, counts


def _bias(weights: Vector, members: Vector, nonmembers: Vector) -> float:
    """Return the bias that minimises the hinge losses; of an interval of them, its middle.

    Summed hinge losses are piecewise linear in b: each point adds C to the slope at y - w . phi(x),
    and the slope starts at -C |members|. So it is 0 between the |members|-th smallest of these
    breakpoints and the next. Where some multiplier is inside its box the two coincide; where none
    is, any b between them is optimal and LIBSVM, too, takes the middle.
    """
    known, unknown = _features(members) @ weights, _features(nonmembers) @ weights
    breakpoints = np.concatenate([1 - known, -1 - unknown])
    last, first = members.size - 1, members.size
    ordered = np.partition(breakpoints, (last, first))
    return float(ordered[last] + ordered[first]) / 2


@dataclass(frozen=True)
class _Point:
    """An interior point: plane z, slack s > 0, error e > 0 and their multipliers a > 0, v > 0.

    The SVC's program is  min 1/2 |w|^2 + u . e  subject to  s = rows z - 1 + e,  with z = (w, b).
    At its optimum  H z = rows' a,  a + v = u,  a s = 0  and  v e = 0,  H = diag(1, ..., 1, 0).
    """

    plane: Vector
    slack: Vector
    error: Vector
    active: Vector
    spare: Vector

    def gap(self) -> float:
        return float(self.active @ self.slack + self.spare @ self.error)

    def move(self, step: _Point, length: float) -> _Point:
        return _Point(
            self.plane + length * step.plane,
            self.slack + length * step.slack,
            self.error + length * step.error,
            self.active + length * step.active,
            self.spare + length * step.spare,
        )

    def reach(self, step: _Point) -> float:
        """Return the longest part of `step`, up to 1, that keeps everything positive."""
        rates = (
            (-step.slack / self.slack).max(),
            (-step.error / self.error).max(),
            (-step.active / self.active).max(),
            (-step.spare / self.spare).max(),
        )
        return float(1 / max(1.0, *rates))


class _Newton:
    """Newton steps for the optimality conditions from one interior point.

    All but the plane can be eliminated, which leaves (H + rows' D rows) dz = r with a positive
    diagonal D: 15 unknowns, whatever the number of points.
    """

    def __init__(self, rows: Matrix, point: _Point) -> None:
        self.rows = rows
        self.point = point
        ridge = np.append(np.ones(RANK), 0.0)
        self.stationarity = rows.T @ point.active - ridge * point.plane
        self.feasibility = rows @ point.plane - 1 + point.error - point.slack
        self.pull = 1 / (point.slack / point.active + point.error / point.spare)
        self.matrix = (rows.T * self.pull) @ rows + np.diag(ridge)

    def step(self, slack_target: Vector, error_target: Vector) -> _Point:
        """Return the step that changes a s and v e by the targets, to first order."""
        at = self.point
        shift = slack_target / at.active - error_target / at.spare - self.feasibility
        right = self.stationarity + self.rows.T @ (self.pull * shift)
        plane = np.asarray(np.linalg.solve(self.matrix, right), dtype=np.float64)
        active = self.pull * (shift - self.rows @ plane)
        slack = (slack_target - at.slack * active) / at.active
        error = (error_target + at.error * active) / at.spare
        return _Point(plane, slack, error, active, -active)


def _solve(rows: Matrix, caps: Vector) -> Vector | None:
    """Return the optimal w by Mehrotra's predictor-corrector method, or None."""
    ones = np.ones(caps.size)
    point = _Point(np.zeros(RANK + 1), ones, 2 * ones, caps / 2, caps / 2)
    for _ in range(ITERATIONS):
        if point.gap() <= GAP * _objective(rows, caps, point):
            return point.plane[:-1]
        try:
            point = _advance(rows, point)
        except np.linalg.LinAlgError:
            break
    # NaN fails this comparison, too.
    good = point.gap() <= LOOSE_GAP * _objective(rows, caps, point)
    return point.plane[:-1] if good else None


def _objective(rows: Matrix, caps: Vector, point: _Point) -> float:
    """Return 1 + the SVC's objective at the point's plane: the scale of its duality gap."""
    weights = point.plane[:-1]
    hinge = np.maximum(0, 1 - rows @ point.plane)
    return float(1 + weights @ weights / 2 + caps @ hinge)


def _advance(rows: Matrix, point: _Point) -> _Point:
    """Take one predictor-corrector step: aim at the optimum, then correct and re-centre."""
    newton = _Newton(rows, point)
    slack_product, error_product = point.active * point.slack, point.spare * point.error
    guess = newton.step(-slack_product, -error_product)
    mean = point.gap() / (2 * point.slack.size)
    ahead = point.move(guess, point.reach(guess)).gap() / point.gap()
    # The less the guess achieves, the more the step goes to the centre (Mehrotra's cube).
    centre = mean * ahead**3
    step = newton.step(
        centre - slack_product - guess.active * guess.slack,
        centre - error_product - guess.spare * guess.error,
    )
    return point.move(step, DAMPING * point.reach(step))
