from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
import weakref

import pytest
import torch
from torch import nn

from gradpivot import Pivot
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.geometry.gramian import gram_of
from gradpivot.geometry.pivot import Case, pivot_weights
from gradpivot.geometry.torchjd import from_torchjd
from gradpivot.geometry.weighting import WeightedSum

DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).to(dtype)


def losses(model: nn.Module, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    dtype = next(model.parameters()).dtype
    x, z = (torch.randn(9, 6, generator=generator).to(dtype) for _ in range(2))
    y = torch.randint(3, (9,), generator=generator)
    ce = nn.functional.cross_entropy
    return -ce(model(x).float(), y), ce(model(z).float(), y)


def gradients(model: nn.Module, seed: int = 0) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    forget, retain = losses(model, seed)
    parameters = list(model.parameters())
    return [list(torch.autograd.grad(loss, parameters)) for loss in (forget, retain)]


def inner(u: list[torch.Tensor], v: list[torch.Tensor]) -> float:
    return sum(float(a.double().flatten() @ b.double().flatten()) for a, b in zip(u, v, strict=True))


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_grad_is_the_pivot_and_conflicts_with_neither_loss(gamma, dtype):
    model = network(dtype)
    f, r = gradients(model)
    step = Pivot(gamma).backward(*losses(model), model.parameters())
    written = [p.grad for p in model.parameters()]
    a, b = pivot_weights(*gram_of(f, r), gamma)
    assert (step.forget_weight, step.retain_weight) == pytest.approx((a, b), rel=1e-12)
    eps = torch.finfo(dtype).eps
    for g, u, v in zip(written, f, r, strict=True):
        assert g.dtype == dtype
        torch.testing.assert_close(g.double(), a * u.double() + b * v.double(), rtol=4 * eps, atol=eps * step.step_norm)
    tolerance = 2 * eps
    for other in (f, r):
        cosine = inner(written, other) / math.sqrt(inner(written, written) * inner(other, other))
        assert cosine >= -tolerance


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sine", [1e-1, 1e-3, 1e-5])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_nearly_opposed_gradients_do_not_conflict_in_any_dtype(dtype, sine, gamma):
    """Where a·f and b·r cancel, rounding either of them first would break the promise."""
    generator = torch.Generator().manual_seed(3)
    u, v = (torch.randn(4000, generator=generator, dtype=torch.float64) for _ in range(2))
    u /= u.norm()
    v -= (v @ u) * u
    v /= v.norm()
    weight = nn.Parameter(torch.zeros(4000, dtype=dtype))
    f = u.to(dtype)
    r = (-math.sqrt(1 - sine**2) * u + sine * v).to(dtype)
    step = Pivot(gamma).backward((weight * f).sum(), (weight * r).sum(), [weight])
    assert step.conflict
    # The Gram matrix is float64, and its rounding turns the direction by 1/sin α times as much.
    tolerance = 2 * torch.finfo(dtype).eps + 4 * torch.finfo(torch.float64).eps / sine
    g = weight.grad.double()
    if step.case is Case.PIVOT:
        for other in (f.double(), r.double()):
            assert float(g @ other) >= -tolerance * float(g.norm() * other.norm())
    else:
        assert step.pareto_stationary
        assert not g.any()


def test_reports_what_happened():
    model = network()
    f, r = gradients(model)
    step = Pivot(0.4).backward(*losses(model), model.parameters())
    gram = gram_of(f, r)
    assert step.cosine == pytest.approx(gram.cosine)
    assert step.phi == pytest.approx(math.pi - math.acos(gram.cosine))
    assert step.forget_norm == pytest.approx(math.sqrt(inner(f, f)))
    assert step.step_norm == pytest.approx(math.sqrt(inner(*[[p.grad for p in model.parameters()]] * 2)))
    assert step.conflict == (gram.cosine < 0)
    assert step.gamma == 0.4
    assert step.to_dict()["case"] == "pivot"


def test_any_optimizer_can_step():
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    pivot = Pivot(0.5)
    before = [loss.item() for loss in losses(model)]
    for _ in range(5):
        optimizer.zero_grad()
        pivot.backward(*losses(model), model.parameters())
        optimizer.step()
    after = [loss.item() for loss in losses(model)]
    assert after[0] < before[0]
    assert after[1] < before[1]


def test_length_limit():
    model = network()
    full = Pivot(0.5).backward(*losses(model), model.parameters())
    model.zero_grad()
    step = Pivot(0.5, max_norm=full.step_norm / 10).backward(*losses(model), model.parameters())
    written = [p.grad for p in model.parameters()]
    assert math.sqrt(inner(written, written)) == pytest.approx(full.step_norm / 10, rel=1e-5)
    assert step.forget_weight == pytest.approx(full.forget_weight / 10)


def test_parameters_that_only_one_loss_touches():
    a, b, c = (nn.Parameter(torch.ones(3)) for _ in range(3))
    forget, retain = (a * 2).sum() + (b * 3).sum(), (b * -1).sum()
    step = Pivot(0.5).backward(forget, retain, [a, b, c])
    torch.testing.assert_close(a.grad, torch.full((3,), 2 * step.forget_weight))
    torch.testing.assert_close(b.grad, torch.full((3,), 3 * step.forget_weight - step.retain_weight))
    assert c.grad is None


def test_frozen_parameters_are_left_alone():
    model = network()
    next(model.parameters()).requires_grad_(False)
    Pivot(0.5).backward(*losses(model), model.parameters())
    assert next(model.parameters()).grad is None
    assert list(model.parameters())[1].grad is not None


def test_mask_removes_weights_from_both_gradients_before_the_angle():
    model = network()
    masks = [torch.arange(p.numel()).reshape(p.shape) % 2 == 0 for p in model.parameters()]
    f, r = gradients(model)
    masked = [[g * m for g, m in zip(side, masks, strict=True)] for side in (f, r)]
    step = Pivot(0.5).backward(*losses(model), model.parameters(), mask=masks)
    assert step.cosine == pytest.approx(gram_of(*masked).cosine)
    for p, m in zip(model.parameters(), masks, strict=True):
        assert not p.grad[~m].any()
        assert p.grad[m].any()


def test_masks_must_fit():
    model = network()
    with pytest.raises(GradPivotError, match="pass one per parameter"):
        Pivot(0.5).backward(*losses(model), model.parameters(), mask=[None])
    wrong = [torch.ones(1) for _ in model.parameters()]
    with pytest.raises(GradPivotError, match="must be equal"):
        Pivot(0.5).backward(*losses(model), model.parameters(), mask=wrong)


def test_accumulation_pivots_the_sums_once():
    model = network(torch.float64)
    pivot = Pivot(0.3)
    for seed in (0, 1):
        pivot.accumulate(*losses(model, seed), model.parameters())
        assert all(p.grad is None for p in model.parameters())
    pivot.backward(*losses(model, 2), model.parameters())
    sides = [gradients(model, seed) for seed in range(3)]
    f, r = ([sum(parts) for parts in zip(*(s[i] for s in sides), strict=True)] for i in (0, 1))
    a, b = pivot_weights(*gram_of(f, r), 0.3)
    for p, u, v in zip(model.parameters(), f, r, strict=True):
        torch.testing.assert_close(p.grad, a * u + b * v)
    model.zero_grad()
    alone = pivot.backward(*losses(model), model.parameters())
    assert alone.forget_norm == pytest.approx(math.sqrt(inner(*[gradients(model)[0]] * 2)))


def test_existing_gradients_are_an_error_unless_added():
    model = network()
    pivot = Pivot(0.5)
    pivot.backward(*losses(model), model.parameters())
    first = [p.grad.clone() for p in model.parameters()]
    with pytest.raises(GradPivotError, match="zero_grad"):
        pivot.backward(*losses(model), model.parameters())
    pivot.backward(*losses(model), model.parameters(), add=True)
    for p, g in zip(model.parameters(), first, strict=True):
        torch.testing.assert_close(p.grad, 2 * g)
    model.zero_grad(set_to_none=False)
    pivot.backward(*losses(model), model.parameters())
    torch.testing.assert_close(next(model.parameters()).grad, first[0])


def test_one_graph_for_both_losses_is_explained():
    model = network()
    logits = model(torch.randn(4, 6))
    with pytest.raises(GradPivotError, match="its own forward pass"):
        Pivot(0.5).backward(-logits.square().mean(), logits.exp().mean(), model.parameters())


def test_losses_as_functions_free_the_first_graph_before_the_second_forward():
    model = network()
    alive: list[weakref.ref[torch.Tensor]] = []
    graph_was_gone: list[bool] = []

    def forget() -> torch.Tensor:
        loss = losses(model)[0]
        alive.append(weakref.ref(loss))
        return loss

    def retain() -> torch.Tensor:
        graph_was_gone.append(alive[0]() is None)
        return losses(model)[1]

    by_function = Pivot(0.5).backward(forget, retain, model.parameters())
    assert graph_was_gone == [True]
    model.zero_grad()
    assert by_function == Pivot(0.5).backward(*losses(model), model.parameters())


def test_opposed_gradients_do_not_move():
    weight = nn.Parameter(torch.ones(3))
    step = Pivot(0.5).backward(weight.sum(), -2 * weight.sum(), [weight])
    assert step.pareto_stationary
    assert step.case is Case.OPPOSED
    assert not weight.grad.any()


def test_non_finite_gradients_are_an_error_and_nothing_is_written():
    weight = nn.Parameter(torch.zeros(3))
    with pytest.raises(NonFiniteError, match="max_norm"):
        Pivot(0.5).backward(weight.sqrt().sum(), weight.sum(), [weight])
    assert weight.grad is None


def test_gamma_schedule_and_its_checkpoint():
    model = network()
    pivot = Pivot(lambda step: step / 2)
    seen = []
    for _ in range(3):
        model.zero_grad()
        seen.append(pivot.backward(*losses(model), model.parameters()).gamma)
    assert seen == [0.0, 0.5, 1.0]
    model.zero_grad()
    with pytest.raises(GradPivotError, match=r"gamma is 1\.5"):
        pivot.backward(*losses(model), model.parameters())
    other = Pivot(lambda step: step / 2)
    other.load_state_dict({"steps": 1} | {k: v - 2 for k, v in pivot.state_dict().items()})
    assert other.backward(*losses(model), model.parameters()).gamma == 0.5


def test_other_weightings_plug_in():
    model = network()
    f, r = gradients(model)
    Pivot(weighting=WeightedSum(0.2, 3)).backward(*losses(model), model.parameters())
    for p, u, v in zip(model.parameters(), f, r, strict=True):
        torch.testing.assert_close(p.grad, 0.2 * u + 3 * v)
    aggregation = pytest.importorskip("torchjd.aggregation")
    model.zero_grad()
    step = Pivot(weighting=from_torchjd(aggregation.MGDAWeighting())).backward(*losses(model), model.parameters())
    assert step.forget_weight + step.retain_weight == pytest.approx(1)


@pytest.mark.parametrize("arguments", [{}, {"gamma": 0.5, "weighting": WeightedSum()}])
def test_either_gamma_or_a_weighting(arguments):
    with pytest.raises(GradPivotError, match="either gamma"):
        Pivot(**arguments)


@pytest.mark.parametrize("max_norm", [0.0, -1.0, math.nan])
def test_length_limit_must_be_positive(max_norm):
    with pytest.raises(GradPivotError, match="positive length"):
        Pivot(0.5, max_norm=max_norm)


def test_grad_scaler_scales_and_unscales():
    model = network()
    plain = Pivot(0.5, max_norm=0.1).backward(*losses(model), model.parameters())
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    step = Pivot(0.5, max_norm=0.1).backward(*losses(model), model.parameters(), scaler=scaler)
    assert step.forget_norm == pytest.approx(plain.forget_norm, rel=1e-5)
    torch.testing.assert_close(next(model.parameters()).grad, 1024 * expected[0])
    scaler.unscale_(optimizer)
    for p, g in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, g)
    scaler.step(optimizer)


def test_overflow_under_a_scaler_skips_the_step_and_is_no_divergence():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
    before = copy.deepcopy(model.state_dict())
    step = Pivot(0.5).backward(*losses(model), model.parameters(), scaler=scaler)
    assert not step.overflow  # 2**120 still fits float32
    model.zero_grad()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    huge = [loss * 1e6 for loss in losses(model)]
    step = Pivot(0.5).backward(*huge, model.parameters(), scaler=scaler)
    assert step.overflow
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() < 2.0**127
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_autocast_forward():
    model = network()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        forget, retain = losses(model)
    step = Pivot(0.5).backward(forget, retain, model.parameters())
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())
    assert step.case is Case.PIVOT


def test_loss_that_reaches_nothing_is_explained():
    weight = nn.Parameter(torch.ones(2))
    with pytest.raises(GradPivotError, match="detached"):
        Pivot(0.5).backward(torch.tensor(1.0), weight.sum(), [weight])
    with pytest.raises(GradPivotError, match="reduce it to a scalar"):
        Pivot(0.5).backward(weight * 1, weight.sum(), [weight])
    with pytest.raises(GradPivotError, match="trainable"):
        Pivot(0.5).backward(weight.sum(), weight.sum(), [torch.ones(2)])
    with pytest.raises(GradPivotError, match="empty after one use"):
        Pivot(0.5).backward(weight.sum(), weight.sum(), [])


def test_sparse_gradients_are_explained():
    embedding = nn.Embedding(5, 2, sparse=True)
    index = torch.tensor([1, 2])
    with pytest.raises(GradPivotError, match="sparse=False"):
        Pivot(0.5).backward(embedding(index).sum(), embedding(index).square().sum(), embedding.parameters())


def test_gradients_that_share_memory_are_not_corrupted():
    """autograd hands one expanded tensor to both addends; writing the pivot into it must not mix them up."""
    a, b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    step = Pivot(0.5).backward((a + b).sum(), (a * torch.tensor([1.0, -2, 3])).sum() - b.sum(), [a, b])
    w_f, w_r = step.forget_weight, step.retain_weight
    torch.testing.assert_close(a.grad, w_f + w_r * torch.tensor([1.0, -2, 3]))
    torch.testing.assert_close(b.grad, torch.full((3,), w_f - w_r))


def test_a_parameter_listed_twice_is_an_error():
    weight = nn.Parameter(torch.ones(3))
    with pytest.raises(GradPivotError, match="listed twice"):
        Pivot(0.5).backward(weight.sum(), -weight.square().sum(), [weight, weight])


def test_channels_last_weights_keep_their_layout():
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 40, 3).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    Pivot(0.5).backward(conv(x).square().mean(), -conv(x).mean(), conv.parameters())
    assert conv.weight.grad.is_contiguous(memory_format=torch.channels_last)


def test_weights_beyond_float32_are_no_crash():
    """Seen in a diverging run: ⟨f,f⟩ ~ 1e-50 beside ⟨r,r⟩ ~ 1e60 gives weights that foreach cannot take."""
    weight = nn.Parameter(torch.zeros(2))
    f, r = torch.tensor([1e-25, 0.0]), torch.tensor([0.0, 1e30])
    step = Pivot(0.5).backward((weight * f).sum(), (weight * r).sum(), [weight])
    assert step.forget_weight > 1e38
    torch.testing.assert_close(weight.grad, torch.tensor([1e30, 1e30]) / math.sqrt(2))


def test_a_step_beyond_the_dtype_is_an_error_not_an_infinity():
    weight = nn.Parameter(torch.zeros(2, dtype=torch.float16))
    f, r = torch.tensor([6e4, 0.0]).half(), torch.tensor([0.0, 6e4]).half()
    # All of ‖T‖ = 8.5e4 along f.
    with pytest.raises(NonFiniteError, match="set max_norm"):
        Pivot(1.0).backward((weight * f).sum(), (weight * r).sum(), [weight])
    assert weight.grad is None
    Pivot(1.0, max_norm=1.0).backward((weight * f).sum(), (weight * r).sum(), [weight])
    assert weight.grad.isfinite().all()


def test_a_step_longer_than_the_largest_number_is_none_beyond_the_dtype():
    """‖T‖ = 8.5e4 is beyond float16, its elements are not."""
    weight = nn.Parameter(torch.zeros(2, dtype=torch.float16))
    f, r = torch.tensor([6e4, 0.0]).half(), torch.tensor([0.0, 6e4]).half()
    step = Pivot(0.5).backward((weight * f).sum(), (weight * r).sum(), [weight])
    assert step.step_norm > torch.finfo(torch.float16).max
    torch.testing.assert_close(weight.grad, f + r)


PEAK = """
import resource, torch
from pathlib import Path
from torch import nn
from gradpivot import Pivot

copy = 4 * 6000 * 6000 / 1024  # KiB of one gradient
model = nn.Linear(6000, 6000, bias=False)
x = torch.randn(2, 6000)
def losses(scale):
    return model(x * scale).square().mean(), -model(x + scale).mean()
small = nn.Linear(3, 3)
Pivot(GAMMA).backward(small(torch.ones(1, 3)).sum(), -small(torch.zeros(1, 3)).square().sum(), small.parameters())
forget, retain = losses(1.0)
before = int(Path('/proc/self/statm').read_text().split()[1]) * resource.getpagesize() / 1024
step = Pivot(GAMMA).backward(forget, retain, model.parameters())
# Not ru_maxrss: a child is born with that of its parent, and pytest may be larger than this.
after = int(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])
print((after - before) / copy)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("gamma", [0.1, 0.9])
@pytest.mark.slow
def test_peak_memory_is_the_gradient_and_one_extra_copy(gamma):
    code = PEAK.replace("GAMMA", str(gamma))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    copies = float(done.stdout)
    assert 1.5 < copies < 2.2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (lambda w: w, "put it in a list"),
        (lambda w: [("w", w)], "pass tensors"),
        (lambda w: [w * 1], "computed from others"),
        (lambda w: [nn.Parameter(torch.zeros(2, dtype=torch.complex64))], "complex"),
        (lambda w: [nn.Parameter(torch.zeros(2))], "depends on none"),
    ],
)
def test_parameters_that_cannot_be_pivoted(parameters, message):
    weight = nn.Parameter(torch.ones(2))
    with pytest.raises(GradPivotError, match=message):
        Pivot(0.5).backward(weight.sum(), -weight.square().sum(), parameters(weight))


def test_more_that_is_explained():
    weight, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    with pytest.raises(GradPivotError, match=r"without \.item"):
        Pivot(0.5).backward(1.0, weight.sum(), [weight])
    with pytest.raises(GradPivotError, match="forget weight is -3"):
        Pivot(0.5, forget_weight=-3)
    pivot = Pivot(0.5)
    pivot.accumulate(weight.sum(), -weight.square().sum(), [weight])
    with pytest.raises(GradPivotError, match="different parameters"):
        pivot.backward((weight + other).sum(), -weight.square().sum(), [weight, other])


def test_a_step_is_json_even_where_the_angle_is_not_defined():
    weight = nn.Parameter(torch.ones(2))
    step = Pivot(0.5).backward((weight * 0).sum(), weight.sum(), [weight])
    assert step.to_dict()["cosine"] is None
    json.dumps(step.to_dict(), allow_nan=False)
