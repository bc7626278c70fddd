"""The search in a world of one weight, where every score is a known function of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from torch import nn

from gradpivot import CUP, WS
from gradpivot.dial.ramp import target_degree
from gradpivot.loop.outcome import Outcome
from gradpivot.targets.conditions import Seen, Targets
from gradpivot.targets.search import BUDGET, MOST_RUNS, Search

Curve = Callable[[float], float]

ROUNDING = 1e-9
"""Prices of runs and looks are added in floating point."""


class World:
    """UA is the weight; a run goes to the degree it is asked for, if ``reach`` lets it; repairs lower ``harm``."""

    tells_degree = is_limited = True

    def __init__(
        self, harm: float = 0.0, reach: float = 1.0, heal: float = 1.0, look: float = 0.03, quick: float = 0.1
    ) -> None:
        self.harm, self.reach, self.heal, self.price, self.quick = harm, reach, heal, look, quick
        self.spent, self.runs, self.looks = 0.0, [], 0
        self.model = nn.Linear(2, 1, bias=False)
        with torch.no_grad():
            self.model.weight.zero_()

    def run(self, number: int, method, start: nn.Module) -> Outcome:
        forgotten, harmed = start.weight[0].tolist()
        self.runs.append((number, method, forgotten))
        share = target_degree(method.gamma) if isinstance(method, CUP) else 1.0
        end = nn.Linear(2, 1, bias=False)
        degree = min(self.reach, forgotten + (1 - forgotten) * share)
        hurt = self.harm * degree if number == 1 else harmed * self.heal
        with torch.no_grad():
            end.weight[0] = torch.tensor([degree, hurt])
        return Outcome(model=end, history={"step": [number]}, seconds=1.0, diverged=None)

    def look(self, model: nn.Module, metrics, *, quick: bool = False) -> Seen:
        self.looks += 1
        forgotten, harmed = model.weight[0].tolist()
        known = {
            "ua": forgotten,
            "mia": min(1.0, 2 * forgotten),
            "auc": 0.5 + abs(forgotten - 0.5),
            "ra": 1 - harmed,
            "ta": 1 - harmed,
        }
        self.spent += self.price * len(metrics) * (self.quick if quick else 1)
        return Seen(**{name: known[name] for name in metrics})

    def search(self, until: str, keep: str | None = None, method=None):
        return self.search_with(self.run, Targets.read(until, keep), method)

    def search_with(self, run, targets, method=None):
        method = method or CUP()

        def cost_of(one):
            return one.epochs / method.epochs if one.iterations is None else one.iterations / method.iterations

        return Search(self.model, method, targets, self, run, cost_of, lambda model: None).go()


@pytest.mark.parametrize("asked", [1, 25, 50, 75, 90, 95, 99, 100])
def test_it_lands_just_where_the_condition_begins_to_hold(asked):
    found = World().search(f"UA>={asked}")
    assert found.met
    assert asked / 100 - 1e-6 <= found.place.seen.ua <= asked / 100 + 0.011
    assert found.model.weight[0, 0].item() == pytest.approx(found.place.seen.ua)
    assert len(found.tries) == 1
    assert found.cost <= 2
    assert found.history == {"step": [1]}


class Shy(World):
    """A run that is not asked for all of it comes to nothing, as on a random subset."""

    def run(self, number: int, method, start: nn.Module) -> Outcome:
        asked_for_all = method.gamma == 1
        return super().run(number, method if asked_for_all else replace(method, gamma=0.0), start)


def test_a_run_that_fell_short_is_not_repeated_but_asked_for_all():
    found = Shy().search("UA>=2")
    assert found.met
    assert [t.method.gamma for t in found.tries][1:] == [1.0]
    assert 0.02 <= found.place.seen.ua <= 0.031


@pytest.mark.parametrize(("given", "used"), [(None, 1.0), (0.2, 0.2)])
def test_what_it_costs_is_for_keep_to_say_unless_the_user_did(given, used):
    found = World().search("UA>=50", method=CUP(budget=given))
    assert [t.method.budget for t in found.tries] == [used]


@pytest.mark.parametrize("until", ["MIA>=80", "AUC<=60", "UA>=30, MIA>=80"])
def test_other_scores_are_reached_by_walking_back_from_all(until):
    found = World().search(until)
    assert found.met
    assert found.tries[0].method.gamma == 1
    assert found.place.seen.ua == pytest.approx(0.4, abs=0.02)


class Barrier(World):
    """Models on the line are worse than either end, as between two networks that share few weights."""

    def look(self, model: nn.Module, metrics, *, quick: bool = False) -> Seen:
        seen, s = super().look(model, metrics, quick=quick), model.weight[0, 0].item()
        return Seen(**{**seen.to_dict(), "ra": seen.ra - 2 * s * (1 - s)}) if "ra" in metrics else seen


def test_the_end_of_the_line_is_tried_where_keep_fails_before_it():
    found = Barrier().search("MIA>=80", "RA>=90")
    assert found.met
    assert found.place.share == 1
    assert len(found.tries) == 1


def test_nothing_runs_if_the_original_meets_it():
    world = World()
    found = world.search("UA>=0", "RA>=99")
    assert found.met
    assert (found.place.run, found.tries, world.runs, found.history) == (0, (), [], {})
    assert found.cost < 0.1
    assert found.model is not world.model
    assert torch.equal(found.model.weight, world.model.weight)


def test_a_repair_run_costs_what_its_gradients_cost():
    # A repair of records pivots, which takes fewer gradients than the restart before it.
    world = World(harm=0.5, heal=0.1)

    def cost_of(method):
        return 1.0 if method.epochs == CUP().epochs else 0.05

    targets = Targets.read("UA>=90", "RA>=95")
    found = Search(world.model, CUP(), targets, world, world.run, cost_of, lambda model: None).go()
    assert found.met
    assert len(found.tries) == 2
    assert found.cost == pytest.approx(1.05 + world.spent)


def test_a_run_that_falls_short_is_continued():
    world = World()

    def short(number, method, start):
        outcome = world.run(number, method, start)
        with torch.no_grad():
            outcome.model.weight[0, 0] = min(outcome.model.weight[0, 0].item(), 0.6 * number)
        return outcome

    found = world.search_with(short, Targets.read("UA>=90"))
    assert found.met
    assert [one.reached for one in found.tries] == [False, True]
    assert world.runs[1][2] == pytest.approx(0.6)
    assert found.tries[1].start.run == 1


def test_what_was_hurt_is_repaired_from_where_it_landed():
    world = World(harm=0.05, heal=0.1)
    found = world.search("UA>=90", "RA>=99")
    assert found.met
    assert len(found.tries) == 2
    first, second = found.tries
    assert first.landed.seen.ra == pytest.approx(0.955, abs=0.001)
    assert world.runs[1][2] == pytest.approx(first.landed.seen.ua)
    assert second.method.epochs < first.method.epochs
    assert found.place.seen.ra > 0.99
    assert found.place.seen.ua == pytest.approx(0.9, abs=0.011)


def test_what_cannot_be_kept_binds_and_the_compromise_keeps_it():
    found = World(harm=0.2).search("UA>=90", "RA>=90, TA>=50")
    assert not found.met
    assert str(found.binding) == "RA>=90"
    assert found.binding_seen.ua >= 0.9
    assert found.binding_seen.ra == pytest.approx(0.82, abs=0.01)
    # Nearest to until of what keeps RA: about 0.1 / 0.2 of the way.
    assert found.place.seen.ra >= 0.9
    assert 0.45 <= found.place.seen.ua <= 0.52


def test_what_cannot_be_reached_binds():
    found = World(reach=0.7).search("UA>=90", "RA>=99")
    assert not found.met
    assert str(found.binding) == "UA>=90"
    assert found.place.seen.ua == pytest.approx(0.7)
    assert all(not one.reached for one in found.tries)


def test_what_the_original_does_not_meet_either():
    world = World()
    with torch.no_grad():
        world.model.weight[0, 1] = 0.1
    found = world.search("UA>=0", "RA>=95")
    assert not found.met or found.place.seen.ra >= 0.95
    never = World(harm=0.2, heal=1.0)
    with torch.no_grad():
        never.model.weight[0, 1] = 0.1
    found = never.search("UA>=50", "RA>=95")
    assert not found.met
    assert str(found.binding) == "RA>=95"


def test_another_method_runs_once_as_it_is():
    world = World(harm=0.2)
    found = world.search("UA>=50", "RA>=95", WS(forget_weight=0.3))
    assert not found.met
    assert [run[1] for run in world.runs] == [WS(forget_weight=0.3)]
    assert found.place.seen.ra >= 0.95
    assert World(reach=0.9).search("UA>=50", method=WS()).met


@given(
    asked=st.integers(1, 100),
    kept=st.integers(50, 100),
    harm=st.floats(0, 0.6),
    reach=st.floats(0, 1),
    heal=st.floats(0, 1.5),
    look=st.floats(0.001, 0.08),
)
@example(asked=51, kept=76, harm=0.5, reach=0.5, heal=1.0, look=0.021484375)
@settings(max_examples=100, deadline=None)
def test_whatever_the_world_is_like_the_verdict_is_true_and_paid_for(asked, kept, harm, reach, heal, look):
    world = World(harm, reach, heal, look)
    targets = Targets.read(f"UA>={asked}", f"RA>={kept}")
    found = world.search_with(world.run, targets)
    conditions = (*targets.until, *targets.keep)
    assert found.met == all(condition.holds(found.place.seen) for condition in conditions)
    assert (found.binding is None) == found.met
    assert all(condition.holds(found.place.seen) for condition in targets.keep)
    assert len(world.runs) <= MOST_RUNS
    assert found.cost <= BUDGET + ROUNDING
    forgotten, harmed = found.model.weight[0].tolist()
    assert forgotten == pytest.approx(found.place.seen.ua)
    assert 1 - harmed == pytest.approx(found.place.seen.ra)


@given(
    until=st.sampled_from(["UA>={}", "AUC<={}", "MIA>={}", "UA>={}, MIA>=60"]),
    asked=st.integers(50, 100),
    keep=st.sampled_from(["RA>={0}", "TA>={0}", "RA>={0}, TA>={0}"]),
    kept=st.integers(50, 100),
    harm=st.floats(0, 0.6),
    reach=st.floats(0, 1),
    look=st.floats(0.001, 0.08),
    quick=st.floats(0, 1),
)
@example(until="MIA>={}", asked=63, keep="RA>={0}, TA>={0}", kept=90, harm=0.5, reach=0.6, look=0.08, quick=1.0)
@settings(max_examples=100, deadline=None)
def test_no_conditions_and_no_price_of_looks_exceed_the_budget(until, asked, keep, kept, harm, reach, look, quick):
    found = World(harm, reach, look=look, quick=quick).search(until.format(asked), keep.format(kept))
    assert found.cost <= BUDGET + ROUNDING


class Gallery(World):
    """A world seen by samples: UA stays at 0 for half of the way, and a look costs more than a run."""

    tells_degree = is_limited = False

    def look(self, model: nn.Module, metrics, *, quick: bool = False) -> Seen:
        forgotten = model.weight[0, 0].item()
        return super().look(model, {"ra", "ua"}).with_more(Seen(ua=max(0.0, 2 * forgotten - 1)))


@pytest.mark.parametrize("asked", [25, 50, 90, 99])
def test_where_ua_is_no_degree_it_goes_all_the_way_and_walks_back(asked):
    world = Gallery(look=2.0)
    found = world.search(f"UA>={asked}", "RA>=99")
    assert found.met
    assert found.tries[0].method.gamma == 1
    assert asked / 100 - 1e-6 <= found.place.seen.ua <= asked / 100 + 0.011


def test_where_ua_is_no_degree_a_repair_holds():
    world = Gallery(harm=0.2, heal=0.1)
    found = world.search("UA>=90", "RA>=95", CUP(iterations=30))
    assert found.met
    assert [(one.method.gamma, one.method.iterations) for one in found.tries] == [(1.0, 30), (0.0, 12)]
