"""A problem: data, a model to make, and how the original was trained. Built in, or the user's own by import path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.evaluate import Judging, SampleScorer, Scorer
from gradpivot.experiments.problems import list_problems, problem_paths
from gradpivot.experiments.recipes.recipe import filled
from gradpivot.methods import Method, Retrain
from gradpivot.models import Images, find_model
from gradpivot.runs import Prepared, Running
from gradpivot.runtime import describe_error, import_path
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.tasks import Task

__all__ = ["Problem", "find_problem", "with_model"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Everything that is fixed before anybody asks to forget.

    Attributes:
        name: What reports call it.
        load: Gives (train, test) as map-style datasets.
        model: Makes a new, randomly initialised model.
        training: The recipe of the original model, and so of the retrained reference.
        task: How to run the model on a batch; classification of (input, label) if not given.
        settings: Method settings that suit this problem, such as a batch size.
        original: Gives the trained model where there is one already; it is trained with ``training`` if None.
        retain_scored: RA is taken on this many retain samples, drawn once, where scoring all would take longer than
            unlearning; on all of them if None.
        images: What its images are like, for models that are chosen by name; None if they are none.
        judging: How samples are judged, for a generator; None for a model that predicts.
    """

    name: str
    load: Callable[[], tuple[Any, Any]]
    model: Callable[[], nn.Module]
    training: Retrain = field(default_factory=Retrain)
    task: Task = field(default_factory=Classification)
    settings: Mapping[str, Any] = field(default_factory=dict)
    original: Callable[[], nn.Module] | None = None
    retain_scored: int | None = None
    images: Images | None = None
    judging: Judging | None = None

    @property
    def target(self) -> Callable[[Any], Any] | None:
        """Reads a sample's label; None where it is the second of a pair, which splits read faster by themselves."""
        return None if self.task == Classification() else self.task.target_of

    @property
    def running(self) -> Running:
        """How its runs are computed, as far as the problem decides that; the seed and the machine are the caller's."""
        return Running(task=self.task, factory=self.model, retain_scored=self.retain_scored)

    def scorer(
        self,
        classifier: Callable[[Problem], nn.Module] | None = None,
        *,
        judging: Judging | None = None,
        folder: Path | None = None,
        running: Running | None = None,
    ) -> Scorer:
        """How its models are scored: samples by a classifier if it has ``judging``, else as its task says.

        Args:
            classifier: From the problem of the classifier to that model, trained; called when the first samples are
                judged. None for a scorer that only checks.
            judging: Other settings than its own.
            folder: Where statistics of real images are kept.
            running: How models are looked at that predict; as :attr:`running` if not given.
        """
        judging = judging or self.judging
        if judging is None:
            return (running or self.running).scoring
        made = judging.classifier
        load = None if classifier is None else (lambda: classifier(find_problem(made)))
        return SampleScorer(judging, load, self.task, folder)

    def prepared(
        self, model: nn.Module, split: ForgetSplit, method: Method, *, searches: bool = False, **options: Any
    ) -> Prepared:
        """A run on this problem, ready to start.

        Args:
            model: The original.
            split: What to forget.
            method: How; what it leaves open is as suits the problem. A training recipe is taken as it is.
            searches: Whether it searches for a target.
            **options: Fields of :class:`gradpivot.runs.Running`, such as ``seed`` and ``scorer``.
        """
        method = method if isinstance(method, Retrain) else filled(method, self.settings)
        return Prepared.of(model, split, method, replace(self.running, **options), searches=searches)

    def training_recipe(self, name: str = "problem") -> Retrain:
        """How to train the model: the problem's own recipe, or a general one with this problem's augmentation.

        Args:
            name: ``problem``; ``paper`` (200 epochs) or ``short`` (20).

        Raises:
            GradPivotError: for another name.
        """
        if name == "problem":
            return self.training
        known = {"paper": Retrain.paper, "short": Retrain.short}
        if name not in known:
            raise GradPivotError(f"there is no training recipe {name!r}; choose problem, {' or '.join(known)}")
        return Retrain.from_dict({"augment": self.settings.get("augment"), **known[name]})


def find_problem(name: str) -> Problem:
    """A built-in or installed problem, or ``package.module:function`` where the function returns a :class:`Problem`.

    Raises:
        GradPivotError: if there is none, with what was looked for.
    """
    path = problem_paths().get(name, name)
    if ":" not in path:
        hint = did_you_mean(name, problem_paths())
        raise GradPivotError(
            f"there is no problem {name!r}{hint} There are {', '.join(list_problems())}; your own goes in as "
            f"my_module:my_problem, a function that returns a gradpivot.experiments.Problem"
        )
    try:
        found = import_path(path)()
    except GradPivotError as error:
        raise GradPivotError(f"cannot load the problem {name!r}: {error}") from error
    # Somebody's function may raise anything.
    except (Exception, SystemExit) as error:
        raise GradPivotError(f"cannot load the problem {name!r} ({describe_error(error)})") from error
    if not isinstance(found, Problem):
        raise GradPivotError(f"{name} returned a {type(found).__name__}, not a Problem")
    return found


def with_model(problem: Problem, name: str, normalise: str | None = None) -> Problem:
    """The problem with another model in the place of its own: see :func:`gradpivot.models.find.find_model`.

    A trained original that the problem brings is of its own model, and goes with it.

    Raises:
        GradPivotError: if there is no such model.
    """
    return replace(problem, model=find_model(name, problem.images, normalise), original=None)
