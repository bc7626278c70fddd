from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import CUP, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.goal import NAT, Misclassified, Unseen
from gradpivot.landing import MAY_COST
from gradpivot.loop import Loop
from gradpivot.objectives import objective
from gradpivot.run import Running, run_method
from gradpivot.steering import asked_degree
from gradpivot.tasks.classification import Classification
from gradpivot.testing import Guarded
from memorised import doubt, memorised, noisy, records

NPO = objective("npo")


def test_never_seen_data_say_what_records_should_look_like():
    split = records(validation=noisy(400, 2))
    goal = Unseen.of(memorised(), Classification(), NPO, split, Loop())
    assert goal.most == pytest.approx(doubt(memorised(), noisy(400, 2)), abs=1e-12)
    assert goal.most > 0.15


def test_the_test_data_are_not_looked_at():
    split = replace(records(validation=noisy(400, 2)), test=Guarded(*noisy(50, 3).tensors))
    Loop().run(CUP(gamma=0.5, epochs=1), memorised(), Classification(), split)


def test_without_never_seen_data_there_is_nothing_to_compare_with():
    with pytest.raises(GradPivotError, match=r"with_validation\(\)"):
        Loop().run(CUP(), memorised(), Classification(), records())


@pytest.mark.parametrize("lr", [1e-4, 1e-2, 1])
@pytest.mark.parametrize("gamma", [0.2, 0.5, 1.0])
def test_records_end_in_as_much_doubt_as_gamma_asks_for(gamma, lr):
    model, split = memorised(), records()
    start = doubt(model, split.train, split.forget_indices)
    result = unlearn(model, split, CUP(gamma=gamma, lr=lr, epochs=20, budget=1.0))
    most = doubt(model, TensorDataset(*split.with_validation().validation[:]))
    asked = start + (most - start) * asked_degree(gamma)
    reached = doubt(result.model, split.train, split.forget_indices)
    assert reached == pytest.approx(asked, abs=0.02 * (most - start))
    assert result.history["reached"][-1] == pytest.approx(reached, abs=1e-6)
    assert result.asked_ua is None
    assert result.missed is None
    assert result.scores.ra > 0.97
    # A model that has not seen them recognises most (the original: 64 % of such data), and so does this one.
    assert result.scores.ua < 0.5


def test_what_a_run_may_cost_shrinks_with_the_way():
    model, split = memorised(), records()
    result = unlearn(model, split, CUP(gamma=1.0, lr=1.0, epochs=4))

    def retain_loss(of: nn.Module) -> float:
        points, labels = split.train.tensors
        kept = torch.as_tensor(np.array(split.retain_indices))
        with torch.no_grad():
            return float(nn.functional.cross_entropy(of(points[kept]), labels[kept]))

    goal = Unseen.of(model, Classification(), NPO, split.with_validation(), Loop())
    unit = goal.unit(doubt(model, split.train, split.forget_indices))
    assert retain_loss(result.model) - retain_loss(model) <= MAY_COST * unit + 1e-6


@pytest.mark.parametrize(
    ("start", "most", "unit"),
    [(0.0, NAT, 1.0), (0.1, 0.9, 1.0), (0.0, NAT / 4, 0.25), (0.05, 0.05 + NAT / 10, 0.1)],
)
def test_a_short_way_makes_losses_matter_more(start, most, unit):
    assert Unseen(Classification(), NPO, most).unit(start) == pytest.approx(unit)
    assert Misclassified(Classification(), NPO).unit(start) == 1


def test_a_way_of_nothing_has_a_unit_all_the_same():
    assert Unseen(Classification(), NPO, 0.1).unit(0.2) > 0


def test_what_looks_unseen_already_is_left_as_it_is():
    """A model that does not know members from others has nothing to forget, and is not trained for the sake of it."""
    model = memorised()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    result = unlearn(model, records(), CUP(gamma=0.8))
    assert result.is_original
    assert "nothing to forget" in result.missed
    assert result.history == {}


def test_half_of_the_test_data_steer_and_the_other_half_score():
    result = unlearn(memorised(), records(), CUP(gamma=0.3, epochs=1))
    assert result.provenance["split"]["validation"] == "half of test"
    assert result.scores.n_test == 200
    given = unlearn(memorised(), records(validation=noisy(100, 2)), CUP(gamma=0.3, epochs=1))
    assert given.scores.n_test == 400


def test_a_class_that_was_never_seen_is_not_named_at_all():
    split = ForgetSplit.by_class(noisy(240, 0), noisy(400, 1), 0).with_validation()
    with pytest.raises(GradPivotError, match="goal='misclassified'"):
        unlearn(memorised(), split, CUP(goal="unseen"))
    assert not CUP().looks_at_unseen("class")
    assert CUP().looks_at_unseen("index")
    assert not CUP(goal="misclassified").looks_at_unseen("random")
    assert not CUP(dial="angle").looks_at_unseen("random")


def test_records_can_be_misclassified_if_that_is_asked_for():
    result = unlearn(
        memorised(), records(), CUP(gamma=0.2, goal="misclassified", lr=0.1, epochs=20, budget=1.0)
    )
    assert result.provenance["split"]["validation"] == "none"
    assert result.scores.ua == pytest.approx(asked_degree(0.2), abs=0.05)


def test_a_task_without_doubts_keeps_its_own_degree():
    class Own(Classification):
        doubting = property()

    with pytest.raises(GradPivotError, match="'doubting'"):
        unlearn(memorised(), records(), CUP(goal="unseen"), task=Own())
    result = unlearn(memorised(), records(), CUP(gamma=0.2, epochs=1), task=Own())
    assert result.scores is not None


def test_goals_are_of_degrees():
    with pytest.raises(GradPivotError, match="dial='degree'"):
        CUP(dial="angle", goal="unseen")
    with pytest.raises(GradPivotError, match="suited, unlikelihood"):
        CUP(objective="nothing")


def test_doubt_that_augmentation_adds_is_none_of_the_way():
    """A dropped-out or augmented batch is in more doubt than the samples are; the course allows for that."""

    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.drop = memorised(), nn.Dropout(0.3)

        def forward(self, points: torch.Tensor) -> torch.Tensor:
            return self.inner(self.drop(points))

    result = unlearn(Dropping().eval(), records(), CUP(gamma=0.3, lr=0.1, epochs=10, budget=1.0))
    history = result.history
    # It does not begin by giving back, as it would if the noise were taken for forgetting.
    assert history["asked"][0] > history["start"][0] + 0.05
    assert np.mean(history["intensity"][:5]) > -0.1
    assert result.missed is None


def test_doubt_is_what_a_model_does_not_say():
    task, batch = Classification(), [part[:7] for part in noisy(240, 0).tensors]
    model = memorised()
    found = task.doubting(model, batch, NPO)
    assert found.degree.tolist() == (1 - task.predict(model, batch).confidence).tolist()
    assert found.loss.item() == task.forget_loss(model, batch, NPO).item()

    class Own(Classification):
        def forget_loss(self, model, batch, objective):
            return 2 * super().forget_loss(model, batch, objective)

    own = Own().doubting(model, batch, NPO)
    assert own.loss.item() == 2 * found.loss.item()
    assert own.degree.tolist() == found.degree.tolist()
    assert not own.degree.requires_grad


def test_the_same_weights_come_of_a_run_that_was_killed(tmp_path):
    split, method = records(), CUP(gamma=0.5, lr=0.1, epochs=4)
    whole = unlearn(memorised(), split, method)

    class KilledError(Exception):
        pass

    def until_half(done: int, total: int) -> None:
        if done == total // 2:
            raise KilledError

    place = tmp_path / "state.pt"
    running = Running(checkpoint=place, checkpoint_seconds=0, progress=until_half)
    with pytest.raises(KilledError):
        run_method(memorised(), split, method, running)
    again = run_method(memorised(), split, method, replace(running, progress=None))
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)
