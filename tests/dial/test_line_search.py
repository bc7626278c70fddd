from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from gradpivot.data.split import ForgetSplit
from gradpivot.dial.goal import Misclassified
from gradpivot.dial.line_search import LineSearch
from gradpivot.dial.settings import DialSettings
from gradpivot.loop.loop import Loop
from gradpivot.tasks.classification import Classification
from gradpivot.tasks.objectives import objective

MAY_COST = DialSettings().retain_budget


class Shifted(nn.Module):
    """Says class 1 for x + bias > 0: of evenly spread x, the bias decides the share that is called 1."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.tensor(-1.0))
        self.keep = nn.Parameter(torch.tensor(0.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score = torch.where(x[:, 1] > 0, 50 * (x[:, 0] + self.bias), -10 + 30 * self.keep)
        return torch.stack([torch.zeros_like(score), score], 1)


def landing(
    model: nn.Module,
    recalibrate: Callable[[], None] | None = None,
    task: Classification | None = None,
    samples: int = 100,
) -> LineSearch:
    """100 forget samples x = 0 … 1 of class 0, 50 retain samples of class 0 that only ``keep`` can hurt."""
    step = 0.5 / samples
    forget = torch.stack([torch.linspace(step, 1 - step, samples), torch.ones(samples)], 1)
    retain = torch.zeros(50, 2)
    labels = torch.zeros(samples + 50, dtype=torch.long)
    data = torch.utils.data.TensorDataset(torch.cat([forget, retain]), labels)
    split = ForgetSplit.by_index(data, data, range(samples))
    return LineSearch(
        model, Misclassified(task or Classification(), objective("unlikelihood")), split, Loop(), recalibrate
    )


@pytest.mark.parametrize("asked", [0.1, 0.25, 0.5, 0.9])
def test_a_run_that_went_too_far_comes_back(asked):
    model = Shifted()
    to = landing(model)
    assert to.start == 0
    with torch.no_grad():
        model.bias.fill_(0.0)
    assert to.degree() == 1
    share = to.move_to(asked)
    assert to.degree() == pytest.approx(asked, abs=0.011)
    assert share == pytest.approx(asked, abs=0.02)


def test_a_run_that_fell_short_goes_on_along_its_line():
    model = Shifted()
    to = landing(model)
    with torch.no_grad():
        model.bias.fill_(-0.6)
    share = to.move_to(0.5)
    assert 1 < share <= 1.5
    assert to.degree() == pytest.approx(0.5, abs=0.011)


def test_but_not_where_that_hurts_what_is_kept():
    model = Shifted()
    to = landing(model)
    with torch.no_grad():
        model.bias.fill_(-0.6)
        model.keep.fill_(0.25)
    assert to.move_to(0.5) == 1


@pytest.mark.parametrize("keep", [0.3, 0.4, 1.0, math.nan])
@pytest.mark.parametrize("asked", [0.4, 0.9])
def test_what_a_run_may_cost_comes_before_what_was_asked_for(keep, asked):
    model = Shifted()
    to = landing(model)
    before = to.retain_loss()
    with torch.no_grad():
        model.bias.fill_(-0.6)
        model.keep.fill_(keep)
    share = to.move_to(asked)
    assert to.retain_loss() - before <= MAY_COST
    assert (0 < share < 1) == math.isfinite(keep)
    if keep < 1:
        # And not much less than it may.
        assert to.retain_loss() - before > 0.7 * MAY_COST


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_no_more_than_a_share_of_it_where_only_that_was_given(share):
    model = Shifted()
    to = landing(model)
    before = to.retain_loss()
    with torch.no_grad():
        model.bias.fill_(-0.3)
        model.keep.fill_(0.4)
    to.move_to(0.7, budget=share)
    assert 0.7 * share * MAY_COST < to.retain_loss() - before <= share * MAY_COST


def test_a_task_may_say_what_a_run_may_cost():
    class Dear(Classification):
        retain_budget = 1.0

    model = Shifted()
    to = landing(model, task=Dear())
    before = to.retain_loss()
    with torch.no_grad():
        model.bias.fill_(-0.3)
        model.keep.fill_(0.35)
    assert MAY_COST < to.retain_loss() - before < 1
    assert to.move_to(0.7) == 1


def test_a_task_may_say_how_many_samples_to_measure():
    class Slow(Classification):
        search_samples = 10
        seen = 0

        def outputs(self, model, inputs):
            type(self).seen += len(inputs)
            return super().outputs(model, inputs)

    landing(Shifted(), task=Slow())
    # The degree and the retain loss.
    assert Slow.seen == 2 * 10


def test_all_of_it_is_more_than_all_but_one():
    """99 of 100 are near enough to any other degree, and go on where γ asks for all."""
    model = Shifted()
    to = landing(model)
    with torch.no_grad():
        model.bias.fill_(-0.01)
    assert to.degree() == pytest.approx(0.99)
    assert 1 < to.move_to(1.0) <= 1.5
    assert to.degree() == 1


class Generating(Classification):
    """What a generator has forgotten is no count of samples, and may never be quite all."""

    predicts = False


def test_all_of_a_thousand_is_all_of_them():
    """Half a percent that is left is what a membership attack still knows."""
    for task, degree in ((Classification(), 1.0), (Generating(), 0.997)):
        model = Shifted()
        to = landing(model, task=task, samples=1000)
        with torch.no_grad():
            model.bias.fill_(-0.003)
        to.move_to(1.0)
        assert to.degree() == pytest.approx(degree)


def test_a_line_that_leads_away_is_not_followed():
    """The run came to know what it should forget: farther along it knows even more."""
    model = Shifted()
    with torch.no_grad():
        model.bias.fill_(-0.8)
    to = landing(model)
    with torch.no_grad():
        model.bias.fill_(-0.9)
    assert to.move_to(0.2) == 1
    assert to.degree() == pytest.approx(0.1, abs=0.011)


class Tide(Shifted):
    """Past a bias of −0.5 it goes back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score = 50 * (x[:, 0] - 0.5 - (self.bias + 0.5).abs())
        return torch.stack([torch.zeros_like(score), score], 1)


def test_nor_beyond_where_it_turns():
    model = Tide()
    to = landing(model)
    with torch.no_grad():
        model.bias.fill_(-0.52)
    share = to.move_to(0.6)
    assert share == 1
    assert to.degree() == pytest.approx(0.48, abs=0.011)


def test_what_is_near_enough_stays_bit_for_bit():
    model = Shifted()
    to = landing(model)
    with torch.no_grad():
        model.bias.fill_(-0.503)
    assert to.move_to(0.5) == 1
    assert model.bias.item() == torch.tensor(-0.503).item()


@pytest.mark.parametrize("asked", [0.3, 0.5, 0.9])
def test_statistics_taken_anew_are_part_of_what_is_landed_on(asked):
    model = Shifted()
    biases = []

    def recalibrate() -> None:
        """As new statistics may: a fifth comes back at every place of the line, once."""
        with torch.no_grad():
            biases.append(model.bias.item())
            model.bias -= 0.2

    to = landing(model, recalibrate)
    with torch.no_grad():
        model.bias.fill_(0.2)
    to.move_to(asked)
    assert to.degree() == pytest.approx(asked, abs=0.011)
    assert biases[-1] == pytest.approx(asked - 0.8, abs=0.02)


def test_statistics_that_forget_enough_by_themselves_end_the_line_at_its_beginning():
    model = Shifted()

    def recalibrate() -> None:
        with torch.no_grad():
            model.bias += 0.4

    to = landing(model, recalibrate)
    with torch.no_grad():
        model.bias.fill_(0.0)
    assert to.move_to(0.3) == 0
    assert to.degree() == pytest.approx(0.4, abs=0.011)


@pytest.mark.parametrize("keep", [0.25, 0.4])
def test_nothing_is_paid_where_nothing_is_forgotten(keep):
    model = Shifted()
    to = landing(model)
    with torch.no_grad():
        model.bias.fill_(-0.999)
        model.keep.fill_(keep)
    assert to.degree() == 0
    assert to.move_to(0.9) == 0
    assert model.keep == 0


def test_the_budget_is_counted_from_the_original_with_new_statistics():
    """Statistics that alone cost more than the budget must not return the original; the line's own cost counts."""
    model = Shifted()

    def recalibrate() -> None:
        with torch.no_grad():
            model.keep += 0.35

    to = landing(model, recalibrate)
    assert model.keep == 0
    beginning = -10 + 30 * 0.35
    with torch.no_grad():
        model.bias.fill_(0.0)
        model.keep.fill_(0.1)
    share = to.move_to(0.9)
    rise = to.retain_loss() - float(torch.nn.functional.softplus(torch.tensor(beginning)))
    assert 0 < share < 0.9
    assert 0 < rise <= MAY_COST


def test_statistics_are_recomputed_once_for_each_point():
    model, calls = Shifted(), []
    to = landing(model, lambda: calls.append(model.bias.item()))
    with torch.no_grad():
        model.bias.fill_(-0.5)
    calls.clear()
    assert to.move_to(0.5) == 1
    assert calls == [-0.5]
