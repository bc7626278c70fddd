"""A problem: data, model and training of the original. Built in, or the user's own by import path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.evaluate import Judging, SampleScorer, Scorer
from gradpivot.experiments.problems import list_problems, problem_paths
from gradpivot.experiments.recipes.recipe import filled
from gradpivot.methods import CUP, Method, Retrain
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
    """Data, model and training, independent of what is forgotten.

    Attributes:
        name: Name in reports.
        load: Returns (train, test) as map-style datasets.
        model: Builds a new, randomly initialised model.
        training: Training recipe of the original and of the retrained reference.
        task: How to run the model on a batch; classification of (input, label) by default.
        settings: Method settings that suit this problem, such as the batch size.
        original: Returns an already trained model; if None, the original is trained with ``training``.
        retain_scored: Number of randomly chosen retain samples used for RA, if scoring all takes too long; None for
            all.
        images: Image format, for models chosen by name; None if inputs are not images.
        judging: How to judge the samples of a generator; None for other models.
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

    def datasets(self) -> tuple[Any, Any]:
        """Load the training and the test data.

        Raises:
            GradPivotError: If ``load`` does not return these two.
        """
        found = self.load()
        if not isinstance(found, tuple | list):
            returned = f"a {type(found).__name__}"
        elif len(found) != 2:
            returned = f"{len(found)} objects"
        elif found[0] is None or found[1] is None:
            returned = f"no {'training' if found[0] is None else 'test'} data"
        else:
            return found[0], found[1]
        raise GradPivotError(f"load of the problem {self.name} must return (train, test); it returned {returned}")

    @property
    def target(self) -> Callable[[Any], Any] | None:
        """Reads a sample's label; None for (input, label) pairs, which splits read faster by themselves."""
        return None if self.task == Classification() else self.task.target_of

    @property
    def running(self) -> Running:
        """Run options that the problem determines; the caller adds the seed and the device."""
        return Running(task=self.task, factory=self.model, retain_scored=self.retain_scored)

    def scorer(
        self,
        classifier: Callable[[Problem], nn.Module] | None = None,
        *,
        judging: Judging | None = None,
        folder: Path | None = None,
        running: Running | None = None,
    ) -> Scorer:
        """The scorer of the problem's models: a classifier of samples if it has ``judging``, else the task's scorer.

        Args:
            classifier: Maps the classifier's problem to its trained model; called when the first samples are judged.
                None for a scorer that only checks.
            judging: Overrides the problem's own settings.
            folder: Cache folder for statistics of real images.
            running: Run options for scoring other models; :attr:`running` by default.
        """
        judging = judging or self.judging
        if judging is None:
            return (running or self.running).scoring
        name = judging.classifier
        load = None if classifier is None else (lambda: classifier(find_problem(name)))
        return SampleScorer(judging, load, self.task, folder)

    def prepared(
        self, model: nn.Module, split: ForgetSplit, method: Method, *, searches: bool = False, **options: Any
    ) -> Prepared:
        """Prepare a run on this problem.

        Args:
            model: The original model.
            split: What to forget.
            method: Unlearning method; unset settings come from the problem, except for :class:`Retrain`.
            searches: Whether the run searches for a target.
            **options: Fields of :class:`gradpivot.runs.Running`, such as ``seed`` and ``scorer``.
        """
        method = method if isinstance(method, Retrain) else filled(method, self._settings_for(method, split))
        return Prepared.of(model, split, method, replace(self.running, **options), searches=searches)

    def _settings_for(self, method: Method, split: ForgetSplit) -> Mapping[str, Any]:
        """Values for unset fields: the problem's settings and, for a restart, how the original was trained."""
        if not (isinstance(method, CUP) and method.restarts(split.kind, self.task)):
            return self.settings
        training = self.training
        known: dict[str, Any] = {"training_epochs": training.epochs, "retain_batch_size": training.batch_size}
        if training.optimizer == method.optimizer:
            known["training_lr"] = training.lr
        return {**known, **self.settings}

    def training_recipe(self, name: str = "problem") -> Retrain:
        """The problem's own training recipe, or a general one with the problem's augmentation.

        Args:
            name: ``problem``, ``paper`` (200 epochs) or ``short`` (20 epochs).

        Raises:
            GradPivotError: For any other name.
        """
        if name == "problem":
            return self.training
        known = {"paper": Retrain.paper, "short": Retrain.short}
        if name not in known:
            raise GradPivotError(f"there is no training recipe {name!r}; choose problem, {' or '.join(known)}")
        return Retrain.from_dict({"augment": self.settings.get("augment"), **known[name]})


def find_problem(name: str) -> Problem:
    """A built-in or installed problem, or ``package.module:function`` with a function that returns a :class:`Problem`.

    Raises:
        GradPivotError: If there is no such problem or it cannot be loaded.
    """
    path = problem_paths().get(name, name)
    if ":" not in path:
        hint = did_you_mean(name, problem_paths())
        raise GradPivotError(
            f"there is no problem {name!r}{hint} Choose from {', '.join(list_problems())}, or give your own as "
            f"my_module:my_problem, a function that returns a gradpivot.experiments.Problem"
        )
    try:
        found = import_path(path)()
    except GradPivotError as error:
        raise GradPivotError(f"cannot load the problem {name!r}: {error}") from error
    # A user's function may raise anything.
    except (Exception, SystemExit) as error:
        raise GradPivotError(f"cannot load the problem {name!r} ({describe_error(error)})") from error
    if not isinstance(found, Problem):
        raise GradPivotError(f"{name} returned a {type(found).__name__}, not a Problem")
    return found


def with_model(problem: Problem, name: str, normalise: str | None = None) -> Problem:
    """The problem with another model: see :func:`gradpivot.models.find.find_model`.

    Drops the problem's trained original, which belongs to the old model.

    Raises:
        GradPivotError: If there is no such model.
    """
    return replace(problem, model=find_model(name, problem.images, normalise), original=None)
