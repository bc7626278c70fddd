"""What a clumsy or hostile caller does in Python, and what must be said: one line that names the value and the way out.

Add a row: what was done, and the words that must be in the error.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import CUP, GA, Classification, ForgetSplit, Pivot, Retrain, score, trace, train, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.experiments.problem import Problem
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.pivot import Case, PivotWeighting, case_of, pivot_weights
from gradpivot.geometry.weighting import WeightedSum
from gradpivot.testing.problems import blobs

TRAIN, TEST = blobs(), blobs(seed=1)
INPUTS, LABELS = TRAIN.tensors
WIDE = TensorDataset(torch.zeros(9, 5), torch.arange(9) % 3)
DOUBLE = TensorDataset(TEST.tensors[0].double(), TEST.tensors[1])
SHIFTED = TensorDataset(TEST.tensors[0], TEST.tensors[1] + 7)
EMPTY = TensorDataset(INPUTS[:0], LABELS[:0])
QUICK = GA(epochs=1, lr=0.01)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def lazy() -> nn.Sequential:
    return nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 3))


class Wrong(nn.Module):
    """A network whose outputs are of another dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.network, self.dtype = network(), dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.network(x).to(self.dtype)
        return made


class MetaBuffer(nn.Linear):
    """Weights are there, but a buffer is not."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.register_buffer("scale", torch.empty(3, device="meta"))


def split(train=TRAIN, test=TEST, **options) -> ForgetSplit:
    return ForgetSplit.by_class(train, test, 0, **options)


def must_not_run(*arguments: object) -> None:
    raise AssertionError("the run started")


def problem(**changes) -> Problem:
    values = {"name": "mine", "load": lambda: (TRAIN, TEST), "model": network, "training": Retrain(epochs=1, lr=0.1)}
    return Problem(**(values | changes))


RUNS = {
    "test data of another shape": (lambda: unlearn(network(), split(test=WIDE), QUICK, progress=must_not_run),
                                   "cannot be run on the test data"),
    "test data of another dtype": (lambda: unlearn(network(), split(test=DOUBLE), QUICK, progress=must_not_run),
                                   "a sample is (float64 (4,), int64 ())"),
    "test labels outside the outputs": (lambda: unlearn(network(), split(test=SHIFTED), QUICK, progress=must_not_run),
                                        "test data: a label is outside 0 … 2"),
    "validation data of another shape": (lambda: unlearn(network(), split(validation=WIDE), progress=must_not_run),
                                         "cannot be run on the validation data"),
    "traced on them": (lambda: trace(network(), split(test=WIDE), CUP(epochs=1), gammas=[0.5]), "on the test data"),
    "scored on them": (lambda: score(network(), split(test=WIDE)), "on the test data"),
    "trained with them": (lambda: train(problem(load=lambda: (TRAIN, WIDE)), progress=must_not_run),
                          "on the test data"),
    "a meta model": (lambda: unlearn(network().to("meta"), split(), QUICK), "0.weight is on the meta device"),
    "a meta model, scored": (lambda: score(network().to("meta"), split()), "0.weight is on the meta device"),
    "a meta model, trained": (lambda: train(problem(model=lambda: network().to("meta"))), "on the meta device"),
    "a meta buffer": (lambda: unlearn(MetaBuffer(), split(), QUICK), "scale is on the meta device"),
    "a lazy model": (lambda: unlearn(lazy(), split(), QUICK), "0.weight is lazy"),
    "a lazy model, scored": (lambda: score(lazy(), split()), "0.weight is lazy"),
    "a lazy model, trained": (lambda: train(problem(model=lazy)), "0.weight is lazy"),
    "integer outputs": (lambda: unlearn(Wrong(torch.int64), split()), "returns int64 numbers"),
    "boolean outputs": (lambda: unlearn(Wrong(torch.bool), split()), "returns bool numbers"),
    "complex outputs": (lambda: unlearn(Wrong(torch.complex64), split()), "returns complex64 numbers"),
    "integer outputs, scored": (lambda: score(Wrong(torch.int64), split()), "returns int64 numbers"),
    "a factory that is none": (lambda: unlearn(network(), split(), Retrain(epochs=1), factory=3),
                               "is or returns a int"),
    "a factory that makes none": (lambda: unlearn(network(), split(), Retrain(epochs=1), factory=lambda: 3),
                                  "is or returns a int"),
    "a model as factory": (lambda: unlearn(network(), split(), Retrain(epochs=1), factory=network()),
                           "is or returns a Sequential"),
    "conditions of a number": (lambda: unlearn(network(), split(), until=3), 'the conditions are 3; write "UA>=95'),
    "workers in words": (lambda: unlearn(network(), split(), QUICK, workers="two"), "workers is 'two'"),
    "progress that is a number": (lambda: unlearn(network(), split(), QUICK, progress=3), "progress is 3"),
    "half a sample": (lambda: unlearn(network(), split(), QUICK, retain_scored=0.5), "retain_scored is 0.5"),
    "one gamma, no list": (lambda: trace(network(), split(), CUP(epochs=1), gammas=0.5), "pass a list"),
    "no model": (lambda: score(None, split()), "the model is a NoneType"),
    "no split": (lambda: score(network(), None), "the split is a NoneType"),
}  # fmt: skip
SPLITS = {
    "a fraction in words": (lambda: ForgetSplit.random(TRAIN, TEST, "a"), "the fraction to forget is 'a'"),
    "no fraction": (lambda: ForgetSplit.random(TRAIN, TEST, None), "the fraction to forget is None"),
    "two fractions": (lambda: ForgetSplit.random(TRAIN, TEST, torch.ones(2)), "the fraction to forget is tensor"),
    "a seed in words": (lambda: ForgetSplit.random(TRAIN, TEST, 0.1, seed="a"), "the seed of the split is 'a'"),
    "no seed": (lambda: ForgetSplit.random(TRAIN, TEST, 0.1, seed=None), "the seed of the split is None"),
    "a class in words": (lambda: ForgetSplit.by_class(TRAIN, TEST, "a"), "a class to forget is 'a'"),
    "classes in classes": (lambda: ForgetSplit.by_class(TRAIN, TEST, [[0], [1, 2]]), "pass integers, or a list"),
    "half an index": (lambda: ForgetSplit.by_index(TRAIN, TEST, [0.5]), "an index to forget is 0.5"),
    "an index beyond 64 bits": (lambda: ForgetSplit.by_index(TRAIN, TEST, [10**30]), "is outside the training set"),
    "a mask that is too short": (lambda: ForgetSplit.by_index(TRAIN, TEST, np.array([True, False])),
                                 "has 2 entries for 120 training samples"),
    "a predicate that is none": (lambda: ForgetSplit.by_predicate(TRAIN, TEST, 3), "the predicate is 3"),
    "a folder as a split file": (lambda: ForgetSplit.load(".", TRAIN, TEST), "cannot read the split file"),
    "no training data, a class": (lambda: split(train=EMPTY), "the training set is empty"),
    "no training data, a fraction": (lambda: ForgetSplit.random(EMPTY, TEST, 0.1), "the training set is empty"),
    "no training data, an index": (lambda: ForgetSplit.by_index(EMPTY, TEST, [0]), "the training set is empty"),
    "no training data, an id": (lambda: ForgetSplit.by_id(EMPTY, TEST, [1], []), "the training set is empty"),
    "no training data to train on": (lambda: train(problem(load=lambda: (EMPTY, TEST))), "the training set is empty"),
    "no test data": (lambda: split(test=EMPTY), "the test set is empty"),
    "no validation data": (lambda: split(validation=EMPTY), "the validation set is empty"),
}  # fmt: skip


def losses(model: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(-1, 1, 12, dtype=next(model.parameters()).dtype).reshape(3, 4)
    return -model(x).square().mean(), model(x + 1).exp().mean()


def pivoted(*, parameters=None, pivot=None, **options) -> object:
    model = network()
    wanted = model.parameters() if parameters is None else parameters(model)
    return (pivot or Pivot(0.5)).backward(*losses(model), wanted, **options)


def masked(mask) -> object:
    model = network()
    return Pivot(0.5).backward(*losses(model), model.parameters(), mask=mask(model))


def mixed(first, second) -> object:
    pivot = Pivot(0.5)
    pivot.accumulate(*losses(first), first.parameters())
    return pivot.backward(*losses(second), second.parameters())


def accumulated_twice() -> object:
    pivot = Pivot(0.5)
    for model in (network(), network()):
        pivot.accumulate(*losses(model), model.parameters())
    return pivot


def reversed_parameters() -> object:
    model, pivot = network(), Pivot(0.5)
    pivot.accumulate(*losses(model), model.parameters())
    return pivot.backward(*losses(model), reversed(list(model.parameters())))


def used_up() -> object:
    model = network()
    parameters = model.parameters()
    list(parameters)
    return Pivot(0.5).backward(*losses(model), parameters)


PIVOTS = {
    "two models, one pivot": (lambda: mixed(network(), network()), "different parameters, or in another order"),
    "two models, accumulated": (accumulated_twice, "different parameters, or in another order"),
    "reversed parameters": (reversed_parameters, "different parameters, or in another order"),
    "no parameters": (lambda: Pivot(0.5).backward(*losses(network()), None), "the parameters are a NoneType"),
    "a module": (lambda: pivoted(parameters=lambda model: model[0]), "the parameters are a Linear"),
    "modules": (lambda: pivoted(parameters=lambda model: model), "a parameter is a Linear"),
    "an iterator that is used up": (used_up, "empty after one use"),
    "max_norm in words": (lambda: Pivot(0.5, max_norm="1"), "max_norm is '1'"),
    "max_norm that is true": (lambda: Pivot(0.5, max_norm=True), "max_norm is True"),
    "a loss weight in words": (lambda: Pivot(0.5, forget_weight="1"), "the forget weight is '1'"),
    "no loss weight": (lambda: Pivot(0.5, retain_weight=None), "the retain weight is None"),
    "a number as weighting": (lambda: Pivot(weighting=0.5), "the weighting is 0.5"),
    "a weighting of NaN": (lambda: pivoted(pivot=Pivot(weighting=lambda gram: (math.nan, 1.0))), "returned (nan, 1.0)"),
    "a weighting of one number": (lambda: pivoted(pivot=Pivot(weighting=lambda gram: 1.0)), "must return two numbers"),
    "a weighting of three": (lambda: pivoted(pivot=Pivot(weighting=lambda gram: (1, 2, 3))), "must return two numbers"),
    "a weighting of nothing": (lambda: pivoted(pivot=Pivot(weighting=lambda gram: None)), "returned None"),
    "a schedule of words": (lambda: pivoted(pivot=Pivot(lambda step: "a")), "gamma is a"),
    "masks of 0.5": (lambda: masked(lambda model: [torch.full_like(p, 0.5) for p in model.parameters()]),
                     "other numbers than 0 and 1"),
    "a mask of NaN": (lambda: masked(lambda model: [torch.full_like(p, math.nan) for p in model.parameters()]),
                      "other numbers than 0 and 1"),
    "a mask that is one tensor": (lambda: masked(lambda model: torch.ones(4)), "the mask is a Tensor"),
    "masks from a generator": (lambda: masked(lambda model: (torch.ones_like(p) for p in model.parameters())),
                               "the mask is a generator"),
    "a number as mask": (lambda: masked(lambda model: 1), "the mask is a int"),
    "masks on another device": (lambda: masked(lambda m: [torch.ones_like(p, device="meta") for p in m.parameters()]),
                                "a mask is on meta, but its parameter is on cpu"),
    "a scaler that is none": (lambda: pivoted(scaler="x"), "the scaler is 'x'"),
    "a weighting beyond float64": (lambda: pivoted(pivot=Pivot(weighting=lambda gram: (1e300, 1e300))),
                                   "overflows float64"),
    "the same, limited": (lambda: pivoted(pivot=Pivot(weighting=lambda gram: (1e300, 1e300), max_norm=1.0)),
                          "overflows float64"),
    "a loss weight beyond float64": (lambda: pivot_weights(1, 1, 0, 0.5, forget_weight=1e308), "is beyond float64"),
    "masks as lists": (lambda: masked(lambda model: [[1]] * 4), "a tensor or None per parameter"),
    "a state of something else": (lambda: Pivot(0.5).load_state_dict({}), "the state is {}"),
    "a state before the start": (lambda: Pivot(0.5).load_state_dict({"steps": -1}), "pass the state_dict() of a Pivot"),
    "a negative loss weight": (lambda: pivot_weights(1, 1, 0, 0.5, forget_weight=-1), "the forget weight is -1"),
    "a loss weight of NaN": (lambda: pivot_weights(1, 1, 0, 0.5, retain_weight=math.nan), "the retain weight is nan"),
    "an infinite loss weight": (lambda: pivot_weights(1, 1, 0, 0.5, forget_weight=math.inf),
                                "the forget weight is inf"),
    "the same in a weighting": (lambda: PivotWeighting(0.5, forget_weight=-1), "the forget weight is -1"),
    "words in a weighted sum": (lambda: WeightedSum("a", 1), "the forget weight is 'a'"),
    "no inner product": (lambda: pivot_weights(None, 1, 0, 0.5), "not finite"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("act", "said"), [pytest.param(*row, id=name) for name, row in (RUNS | SPLITS | PIVOTS).items()]
)
def test_what_is_said(act, said):
    with pytest.raises(GradPivotError) as error:
        act()
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def clamp(parameter: nn.Parameter) -> None:
    parameter.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))


def clamp_afterwards(parameter: nn.Parameter) -> None:
    parameter.register_post_accumulate_grad_hook(lambda p: p.grad.clamp_(-1e-3, 1e-3))


def step_in_backward(parameter: nn.Parameter) -> None:
    optimizer = torch.optim.SGD([parameter], lr=1.0)

    def step(p: nn.Parameter) -> None:
        optimizer.step()
        optimizer.zero_grad()

    parameter.register_post_accumulate_grad_hook(step)


def step_in_backward_by_torch(parameter: nn.Parameter) -> None:
    from torch.distributed.optim import _apply_optimizer_in_backward

    _apply_optimizer_in_backward(torch.optim.SGD, [parameter], {"lr": 1.0})


HOOKS = [clamp, clamp_afterwards, step_in_backward, step_in_backward_by_torch]


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("call", ["backward", "accumulate"])
def test_hooks_on_parameters_are_refused_before_they_act(hook, call):
    """Each gradient would be clipped, or stepped along, on its own."""
    model = network()
    hook(model[0].weight)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(GradPivotError, match=r"parameter 0 of shape \(8, 4\) has a hook .* remove it"):
        getattr(Pivot(0.5), call)(*losses(model), model.parameters())
    assert all(map(torch.equal, before, model.parameters()))
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("call", ["backward", "accumulate"])
def test_a_step_by_a_hook_that_nobody_can_list_is_noticed(call):
    """How optimizers in the backward pass were written before torch 2.1: a hook on the node that fills .grad."""
    model = network()
    weight = model[0].weight
    node = weight.view_as(weight).grad_fn.next_functions[0][0]
    optimizer = torch.optim.SGD([weight], lr=1.0)
    node.register_hook(lambda *_: optimizer.step())
    with pytest.raises(GradPivotError, match="a parameter changed during the backward pass"):
        getattr(Pivot(0.5), call)(*losses(model), model.parameters())
    assert all(p.grad is None for p in model.parameters())


def test_a_hook_that_is_removed_is_none():
    model = network()
    handle = model[0].weight.register_hook(lambda gradient: gradient * 0)
    handle.remove()
    assert Pivot(0.5).backward(*losses(model), model.parameters()).forget_norm > 0


@pytest.mark.parametrize("hook", HOOKS)
def test_a_run_does_not_trigger_the_hooks_of_its_original(hook):
    """It works on a copy, which has none."""
    plain, hooked = network(), network()
    for parameter in hooked.parameters():
        hook(parameter)
    results = [unlearn(model, split(), CUP(epochs=1, batch_size=20)) for model in (plain, hooked)]
    for one, other, before in zip(*(r.model.parameters() for r in results), hooked.parameters(), strict=True):
        assert torch.equal(one, other)
        assert not torch.equal(one, before)
    assert all(map(torch.equal, plain.parameters(), hooked.parameters()))


class Hooking(Classification):
    """A task that hooks the weights of the copy."""

    def forget_loss(self, model, batch, objective):
        clamp(next(model.parameters()))
        return super().forget_loss(model, batch, objective)


def test_a_hook_on_the_copy_is_refused():
    with pytest.raises(GradPivotError, match="has a hook"):
        unlearn(network(), split(), QUICK, task=Hooking())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused_only_if_an_element_does_not_fit(dtype):
    """300 elements of half the largest number: the norm is nine times that number, and no element is beyond it."""
    half = torch.finfo(dtype).max / 2
    weight = nn.Parameter(torch.zeros(600, dtype=dtype))
    f, r = (torch.zeros(600, dtype=dtype) for _ in range(2))
    f[:300], r[300:] = half, half
    step = Pivot(0.5).backward((weight * f).sum(), (weight * r).sum(), [weight])
    assert step.step_norm > 4 * torch.finfo(dtype).max
    torch.testing.assert_close(weight.grad, f + r)
    weight.grad = None
    with pytest.raises(GradPivotError, match="set max_norm"):
        Pivot(0.5, forget_weight=4.0).backward((weight * f).sum(), (weight * r).sum(), [weight])
    assert weight.grad is None


def of_size(forget: float, retain: float, **options) -> tuple[object, nn.Parameter]:
    weight = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    f = forget * torch.tensor([1.0, 1, 0], dtype=torch.float64)
    r = retain * torch.tensor([0.0, 1, 1], dtype=torch.float64)
    return Pivot(0.5, **options).backward((weight * f).sum(), (weight * r).sum(), [weight]), weight


@pytest.mark.parametrize("sizes", [(1e160, 1.0), (1.0, 1e160), (1e200, 1e200)])
def test_gradients_that_are_too_long_are_not_called_nan(sizes):
    with pytest.raises(GradPivotError, match=r"longer than 1e154.*divide both losses"):
        of_size(*sizes)


def test_nor_does_a_scaler_take_them_for_an_overflow():
    weight = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    with pytest.raises(GradPivotError, match="longer than 1e154"):
        Pivot(0.5).backward((weight * 1e160).sum(), weight.sum(), [weight], scaler=scaler)
    assert weight.grad is None


@pytest.mark.parametrize("tiny", [1e-150, 1e-160, 1e-200, 1e-320])
def test_gradients_that_are_too_short_count_as_zero(tiny):
    step, weight = of_size(tiny, 1.0)
    assert step.case is Case.NOTHING_TO_FORGET
    assert weight.grad.tolist() == [0, 1, 1]
    step, weight = of_size(1.0, tiny)
    assert step.case is Case.NOTHING_TO_RETAIN
    assert weight.grad.tolist() == [1, 1, 0]
    step, weight = of_size(tiny, tiny)
    assert step.case is Case.FLAT
    assert not weight.grad.any()


@pytest.mark.parametrize("tiny", [1e-310, 1e-318, 5e-324])
def test_inner_products_without_digits_are_inner_products(tiny):
    """Below 1e-308 a float64 loses digits, so that Cauchy-Schwarz need not hold for what is left."""
    assert case_of(Gram(tiny, tiny, 1.01 * tiny)) is Case.FLAT
    assert case_of(Gram(tiny, 1.0, 1.01 * math.sqrt(tiny))) is Case.NOTHING_TO_FORGET
    assert case_of(Gram(0.0, 1.0, tiny)) is Case.NOTHING_TO_FORGET
