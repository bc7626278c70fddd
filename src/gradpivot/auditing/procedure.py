"""The audit: run every attack of a level, judge the findings, answer three questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from gradpivot.auditing.attack import LEVELS, Attack, NotApplicableError, NotTestedError
from gradpivot.auditing.registry import all_attacks, attacks_up_to
from gradpivot.auditing.sections import page_sections
from gradpivot.auditing.subject import Subject
from gradpivot.auditing.worlds import Worlds, run_worlds, target_of
from gradpivot.data import ForgetSplit
from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.models import weights_digest
from gradpivot.results import QUESTIONS, AuditRecord, Finding, judge, verdict_on
from gradpivot.runs import check_fits
from gradpivot.runtime import environment
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    from gradpivot.loop import Progress
    from gradpivot.methods import Method
    from gradpivot.tasks import Task

__all__ = ["Audit", "Shadows", "audit", "check_level"]

_MAX_RECOGNISED = 0.1
"""Share of a forgotten class that a model trained without it may recognise by chance."""


@dataclass(frozen=True, kw_only=True)
class Audit(AuditRecord):
    """A finished audit: ``verdicts``, ``attacks``, and :meth:`save`."""

    def __repr__(self) -> str:
        outcomes = ", ".join(f"{name}: {verdict.outcome}" for name, verdict in self.verdicts.items())
        return f"Audit({outcomes}; level {self.level}, {len(self.attacks)} attacks)"

    def save(self, folder: str | Path) -> None:
        """Write ``audit.json`` and ``audit.html``, a self-contained page."""
        from gradpivot.report import write_audit

        write_audit(self, Path(folder))


@dataclass(frozen=True, kw_only=True)
class Shadows:
    """How shadow models are trained, for level ``full``.

    Attributes:
        problem: Name of the problem, or ``module:function``: workers load data, model and recipe by it.
        count: Number of worlds.
        store: Folder of finished shadow models; shared by all audits of the same problem and forget set.
        engine: Where they are trained.
        jobs: Worker processes; one per core if None.
        threads: CPU threads per worker.
        together: Train small networks as one program; see :func:`gradpivot.auditing.worlds.run_worlds`.
        watch: Called with the state of the sweep.
    """

    problem: str
    count: int = 32
    store: Path = Path("runs/shadows")
    engine: str = "local"
    jobs: int | None = None
    threads: int = 1
    together: bool = False
    watch: Any = None

    def __post_init__(self) -> None:
        if not 4 <= self.count <= 10_000:
            raise GradPivotError(
                f"shadows is {self.count}; U-LiRA needs at least 4 worlds, 16 or more are useful, and at most 10,000"
            )

    def run(self, split: ForgetSplit, method: Method, seed: int) -> Worlds:
        """Train, unlearn and measure every world that the store does not have yet."""
        found = run_worlds(
            self.problem, target_of(split), {method.name: method}, count=self.count, seed=seed, store=self.store,
            engine=self.engine, jobs=self.jobs, threads=self.threads, together=self.together, watch=self.watch,
        )  # fmt: skip
        return found[method.name]


def audit(
    model: nn.Module,
    split: ForgetSplit,
    *,
    original: nn.Module | None = None,
    retrain: nn.Module | Sequence[nn.Module] | None = None,
    method: Method | None = None,
    level: str = "quick",
    shadows: int | Shadows | Worlds | None = 32,
    seed: int = 0,
    problem: str | None = None,
    task: Task | None = None,
    images: bool | None = None,
    workers: int = 0,
    progress: Progress | None = None,
    command: str = "",
) -> Audit:
    """Attack a model that claims to have forgotten, and compare it with a retrained one.

    Args:
        model: The unlearned model, from this library or any other. It is not changed.
        split: What it was to forget.
        original: The model before unlearning. Without it, comparisons with it are left out.
        retrain: A model trained without the forgotten data: the control. Further ones give the noise between
            retrained models. Without it, attacks that need a control are left out or undetermined.
        method: How the model was unlearned, to repeat it on shadow models at level ``full``; None for other software.
        level: ``quick`` (no training), ``standard`` (adds fine-tuning and relearning attacks) or ``full`` (adds
            U-LiRA and KLoM with shadow models).
        shadows: Number of shadow worlds; :class:`gradpivot.auditing.Shadows` to say how they are trained; or what its
            ``run`` returned. None for no shadow models.
        seed: Seed of everything random in the audit.
        problem: The problem's name or ``module:function``, for training shadow models.
        task: How to run the model on a batch; classification of (input, label) batches by default.
        images: Whether the page shows pictures of records. By default only for forgotten classes: single records may
            be personal data that must not be kept.
        workers: Data-loading processes.
        progress: Called with (attacks done, attacks in all).
        command: The command line to record.

    Returns:
        The verdicts on ``membership``, ``knowledge`` and ``collateral``, each *indistinguishable* (from retraining),
        *distinguishable* or *undetermined*, with every finding behind them.

    Example:
        >>> found = audit(result.model, split, original=model, retrain=retrained.model)
        >>> found.verdicts["membership"].outcome
    """
    check_level(level)
    if isinstance(shadows, int) and level == "full" and method is not None:
        shadows = _plan(shadows, problem)
    subject = _subject(model, split, original, retrain, task, seed, workers)
    # One record cannot be both inside and outside a world.
    if isinstance(shadows, Shadows) and level == "full" and method is not None and len(split.forget_indices) > 1:
        shadows = shadows.run(split, method, seed)
    if isinstance(shadows, Worlds):
        subject = replace(subject, worlds=shadows)
    findings, not_tested, missing = _attacked(subject, attacks_up_to(level), progress)
    skipped = (attack for attack in all_attacks() if attack not in attacks_up_to(level))
    not_tested |= {attack.title: f"only at level {attack.level}" for attack in skipped}
    judged = judge_all(findings)
    if _is_own_control(subject):
        missing = {question: {"Independent control": "it has the audited model's weights"} for question in QUESTIONS}
    is_less = level == "full" and subject.worlds is None
    return Audit(
        verdicts={question: verdict_on(question, judged, missing[question]) for question in QUESTIONS},
        attacks=judged,
        level="full without shadow models" if is_less else level,
        problem={"name": problem or "", **split.facts()},
        not_tested=not_tested,
        sections=page_sections(subject, judged, images=subject.is_class if images is None else images),
        provenance=_provenance(subject, method, level, command),
    )


def check_level(level: str) -> None:
    """Raise for an unknown level."""
    if level not in LEVELS:
        raise GradPivotError(
            f"there is no audit level {level!r}{did_you_mean(level, LEVELS)} Choose {', '.join(LEVELS)}"
        )


def judge_all(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Judge the deciding findings, each question with a correction for its number of findings."""
    found = tuple(findings)
    comparisons = Counter(one.question for one in found if one.decides and one.error is not None)
    return tuple(
        replace(one, outcome=judge(one, comparisons[one.question] or 1)) if one.decides else one for one in found
    )


def _plan(count: int, problem: str | None) -> Shadows:
    if problem is None:
        raise GradPivotError(
            "level full trains shadow models, which needs the data, model and recipe; pass problem='digits' or "
            "problem='my_module:my_problem', or use level='standard'"
        )
    return Shadows(problem=problem, count=count)


def _subject(
    model: nn.Module,
    split: ForgetSplit,
    original: nn.Module | None,
    retrain: nn.Module | Sequence[nn.Module] | None,
    task: Task | None,
    seed: int,
    workers: int,
) -> Subject:
    """Check every model on the data before any attack runs."""
    if not isinstance(split, ForgetSplit):
        raise GradPivotError(f"the split is a {type(split).__name__}; pass a ForgetSplit, or ForgetSplit.load(file, …)")
    chosen = Classification.require(task or Classification(), by="the audit")
    retrained = () if retrain is None else (retrain,) if isinstance(retrain, nn.Module) else tuple(retrain)
    given = {"the model": model, "the original model": original}
    given |= {f"retrained model {number}": one for number, one in enumerate(retrained, 1)}
    for called, one in given.items():
        if one is None:
            continue
        if not isinstance(one, nn.Module):
            raise GradPivotError(f"{called} is a {type(one).__name__}; pass a torch.nn.Module, such as result.model")
        check_fits(one, split, chosen, called=called)
    subject = Subject(
        model=model, split=split, original=original, retrained=retrained, task=chosen, seed=seed, workers=workers
    )
    _check_control(subject)
    return subject


def _attacked(
    subject: Subject, attacks: Sequence[Attack], progress: Progress | None
) -> tuple[list[Finding], dict[str, str], dict[str, dict[str, str]]]:
    """Run the attacks.

    Returns:
        The findings; the attacks that were left out, with the reason; and of these, by question, the ones that would
        have decided it.
    """
    findings: list[Finding] = []
    not_tested: dict[str, str] = {}
    missing: dict[str, dict[str, str]] = {question: {} for question in QUESTIONS}
    for number, attack in enumerate(attacks, 1):
        try:
            findings.append(attack.run(subject))
        except NotTestedError as reason:
            not_tested[attack.title] = str(reason)
            if attack.decides and not isinstance(reason, NotApplicableError):
                missing[attack.question][attack.title] = str(reason)
        if progress:
            progress(number, len(attacks))
    return findings, not_tested, missing


def _is_own_control(subject: Subject) -> bool:
    """Whether a control is the audited model, so that every difference is zero by construction."""
    audited = weights_digest(subject.model)
    return any(weights_digest(control) == audited for control in subject.retrained)


def _check_control(subject: Subject) -> None:
    """Raise for a control that cannot have been trained without the forgotten data."""
    if subject.original is not None:
        original = weights_digest(subject.original)
        if any(weights_digest(one) == original for one in subject.retrained):
            raise GradPivotError(
                "a retrained model has the same weights as the original; pass one trained without the forgotten data"
            )
    for one in subject.retrained if subject.is_class else ():
        share = float(subject.outputs(one, "forget").correct.mean())
        if share > _MAX_RECOGNISED:
            raise GradPivotError(
                f"a retrained model recognises {100 * share:.0f} % of the forgotten classes; one that was trained "
                f"without them cannot"
            )


def _provenance(subject: Subject, method: Method | None, level: str, command: str) -> Mapping[str, Any]:
    models = {"audited": subject.model, "original": subject.original}
    models |= {f"retrained {number}": one for number, one in enumerate(subject.retrained, 1)}
    return {
        "command": command or "audit() in Python",
        "level": level,
        "seed": subject.seed,
        "method": None if method is None else method.to_dict(),
        "shadows": None if subject.worlds is None else len(subject.worlds.inside),
        "weights": {role: weights_digest(model) for role, model in models.items() if model is not None},
        "data": subject.split.data_digest,
        "split": subject.split.facts(),
        "environment": environment(str(next(subject.model.parameters()).device)),
    }
