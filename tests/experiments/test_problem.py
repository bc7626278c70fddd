"""The built-in problems: there for every recipe, made without their data, and clear about where those come from."""

from __future__ import annotations

import shutil
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gradpivot.errors import GradPivotError
from gradpivot.experiments import problems
from gradpivot.experiments.problem import find_problem
from gradpivot.experiments.problems import list_problems, problem_paths
from gradpivot.experiments.recipes.finding import list_recipes
from gradpivot.experiments.recipes.reading import load_recipe
from gradpivot.runtime.randomness import isolated
from gradpivot.tasks.classification import Classification

FETCHED = [name for name in list_problems() if name not in ("digits", "toy")]
GENERATORS = [name for name in FETCHED if name.endswith("-ddpm")]


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_has_its_problem(name):
    assert load_recipe(name).problem in list_problems()


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_takes_the_stored_bytes(name):
    problem = find_problem(name)
    model = problem.model().eval()
    size, channels = model.config.sample_size, model.config.in_channels
    batch = torch.randint(0, 256, (1, channels, size, size), dtype=torch.uint8), torch.tensor([9])
    with isolated(0), torch.no_grad():
        assert 0 < float(problem.task.retain_loss(model, batch)) < 10


@pytest.mark.parametrize("name", sorted(set(FETCHED) - set(GENERATORS)))
def test_a_model_takes_the_stored_bytes(name):
    problem = find_problem(name)
    images = problem.images
    batch = torch.randint(0, 256, (2, images.channels, images.size, images.size), dtype=torch.uint8)
    logits = problem.model().eval()(batch)
    assert logits.shape == (2, images.classes)
    assert logits.dtype is torch.float32


@pytest.mark.parametrize("name", FETCHED)
def test_without_data_it_says_how_to_get_them(name, monkeypatch, tmp_path):
    monkeypatch.setenv("GRADPIVOT_DATA", str(tmp_path))
    with pytest.raises(GradPivotError, match="is not on this machine; run 'gradpivot data get"):
        find_problem(name).load()


def test_the_pretrained_network_is_asked_for_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv("GRADPIVOT_DATA", str(tmp_path))
    problem = find_problem("cifar10")
    assert problem.original is not None
    with pytest.raises(GradPivotError, match="run 'gradpivot data get resnet18-cifar10'"):
        problem.original()


def test_reference_and_original_of_the_small_problem_are_trained_alike():
    problem = find_problem("cifar10-small")
    assert problem.original is None
    assert problem.training.schedule == "one_cycle"
    assert problem.training.augment == problem.settings["augment"] == "crop_flip"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def problem(: pass", "SyntaxError"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines"),
        ("import sys; sys.exit(2)", "SystemExit: 2"),
        ("def problem(): return 1 / 0", "ZeroDivisionError"),
        ("def problem(): return 1", "returned a int, not a Problem"),
        ("problm = 1", "has no attribute 'problem'; did you mean 'problm'"),
    ],
)
def test_what_is_wrong_with_somebodys_problem_is_one_line(code, message, tmp_path, monkeypatch):
    name = f"wrong_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(GradPivotError, match=message) as error:
        find_problem(f"{name}:problem")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [":x", ".x:y", "no_such_module:y"])
def test_names_that_lead_nowhere(name):
    with pytest.raises(GradPivotError, match="cannot load the problem"):
        find_problem(name)


def test_only_another_task_reads_labels_its_own_way():
    """Splits read the labels of pairs at once; a task's own way is sample by sample."""
    made = find_problem("digits")
    assert made.target is None
    own = Classification(adapter=lambda sample: (sample[0], sample[1] + 1))
    assert replace(made, task=own).target((None, 3)) == 4


EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "my_problem.py"


@pytest.fixture
def looked_up_again():
    problem_paths.cache_clear()
    yield
    problem_paths.cache_clear()


@pytest.mark.usefixtures("looked_up_again")
def test_a_file_in_the_folder_is_a_problem(tmp_path, monkeypatch):
    """The documented data set, as one of ours: no list to edit."""
    shutil.copy(EXAMPLE, tmp_path / "clusters.py")
    monkeypatch.setattr(problems, "__path__", [*problems.__path__, str(tmp_path)])
    assert "clusters" in list_problems()
    train, test = find_problem("clusters").load()
    assert (len(train), len(test)) == (800, 400)
    monkeypatch.delitem(sys.modules, "gradpivot.experiments.problems.clusters")


@pytest.mark.usefixtures("looked_up_again")
def test_an_installed_problem_has_a_name(install, monkeypatch):
    """The same file, as somebody's package."""
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    install("gradpivot.problems", clusters="my_problem:clusters", digits="my_problem:clusters")
    assert "clusters" in list_problems()
    assert find_problem("clusters").name == "clusters"
    assert find_problem("digits").name == "digits"  # Ours stay ours.


@pytest.mark.parametrize(
    ("returned", "message"),
    [((1, 2, 3), "it returned 3 objects"), ("data", "it returned a str"), (([0], None), "it returned no test data")],
)
def test_load_returns_two_datasets(returned, message):
    problem = replace(find_problem("toy"), load=lambda: returned)
    with pytest.raises(GradPivotError, match=rf"must return \(train, test\); {message}"):
        problem.datasets()
