from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import CUP, GA, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.geometry.gradient import gradient_of
from gradpivot.loop import precision
from gradpivot.loop.loop import Loop
from gradpivot.loop.precision import Passes
from gradpivot.runs.run import Running, run_method
from gradpivot.runtime.modes import evaluating
from gradpivot.tasks.classification import Classification
from gradpivot.testing.problems import blobs, trained


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def loss_of(model: nn.Module, times: float = 1.0):
    features, labels = blobs().tensors
    return lambda: times * Classification().retain_loss(model, (features, labels))


def parameters_of(model: nn.Module) -> list[torch.Tensor]:
    return list(model.parameters())


def flat(gradient) -> torch.Tensor:
    return torch.cat([g.reshape(-1) for g in gradient])


@pytest.fixture
def model() -> nn.Module:
    return trained().eval()


def test_plain_passes_are_what_pytorch_does(model):
    gradient, value = Passes(model).loss_and_gradient(loss_of(model), parameters_of(model))
    assert torch.equal(flat(gradient), flat(gradient_of(loss_of(model), parameters_of(model))))
    assert value == float(loss_of(model)().detach())


def test_the_callers_autocast_does_not_reach_the_losses(model):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, value = Passes(model).loss_and_gradient(loss_of(model), parameters_of(model))
        again = Passes(model).loss(loss_of(model))
    assert value == again == float(loss_of(model)().detach())


@pytest.mark.parametrize(("precision", "bits"), [("bfloat16", 8), ("float16", 11)])
def test_half_precision_is_as_exact_as_its_digits_and_hands_out_float32(model, precision, bits):
    exact, value = Passes(model).loss_and_gradient(loss_of(model), parameters_of(model))
    rough, near = Passes(model, precision).loss_and_gradient(loss_of(model), parameters_of(model))
    assert {g.dtype for g in rough} == {torch.float32}
    error = float((flat(rough) - flat(exact)).norm() / flat(exact).norm())
    assert 2.0 ** -(bits + 6) < error < 2.0 ** -(bits - 4)
    assert near != value
    assert near == pytest.approx(value, rel=2.0 ** -(bits - 4))


def test_tiny_float16_gradients_are_not_lost(model):
    """Below 6e-8 float16 is zero: without the scale the gradient of a millionth of the loss mostly vanishes."""
    exact = flat(gradient_of(loss_of(model, 1e-6), parameters_of(model)))
    scaled, _ = Passes(model, "float16").loss_and_gradient(loss_of(model, 1e-6), parameters_of(model))
    assert float((flat(scaled) - exact).norm() / exact.norm()) < 0.01


def test_an_overflow_halves_the_scale_and_loses_no_step(model):
    passes = Passes(model, "float16")
    calls = 0

    def loss():
        nonlocal calls
        calls += 1
        return loss_of(model, 50.0)()

    exact = flat(gradient_of(loss_of(model, 50.0), parameters_of(model)))
    passes.load_state_dict({"scale": 2.0**40, "clean": 5})
    gradient, _ = passes.loss_and_gradient(loss, parameters_of(model))
    assert calls > 1
    assert passes.state_dict() == {"scale": 2.0 ** (41 - calls), "clean": 1}
    assert float((flat(gradient) - exact).norm() / exact.norm()) < 0.01


class Overflows(Classification):
    """Its first retain pass and its third overflow, whatever the scale."""

    def retain_loss(self, model, batch):
        self.__dict__["passes"] = self.__dict__.get("passes", 0) + 1
        loss = super().retain_loss(model, batch)
        if self.__dict__["passes"] in (1, 3):
            loss.register_hook(lambda gradient: gradient * math.inf)
        return loss


def test_a_pass_that_is_done_again_is_the_same_pass(monkeypatch):
    """Random labels, dropout, BatchNorm's averages and its count: as if the scale had been right at once."""
    method = CUP(objective="random_label", dial="angle", batchnorm="train", epochs=1, lr=0.01)
    again = unlearn(trained(), split(), method, task=Overflows(), precision="float16")
    monkeypatch.setattr(precision, "_INITIAL_SCALE", 2.0**14)
    once = unlearn(trained(), split(), method, precision="float16")
    for name, weight in once.model.state_dict().items():
        if "num_batches" in name:
            assert torch.equal(again.model.state_dict()[name], weight)
        # A float16 underflow may round otherwise under another scale, once.
        torch.testing.assert_close(again.model.state_dict()[name], weight, atol=1e-6, rtol=1e-4)


def test_the_scale_grows_again(model):
    passes = Passes(model, "float16")
    passes.load_state_dict({"scale": 8.0, "clean": 1999})
    passes.loss_and_gradient(loss_of(model), parameters_of(model))
    assert passes.state_dict() == {"scale": 16.0, "clean": 0}


def test_what_no_scale_helps_comes_out_as_it_is(model):
    passes = Passes(model, "float16")
    gradient, value = passes.loss_and_gradient(loss_of(model, math.inf), parameters_of(model))
    assert not math.isfinite(value)
    assert not bool(flat(gradient).isfinite().all())


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.numeric
def test_unlearning_in_half_precision_forgets_and_repeats(precision):
    first, second = (
        unlearn(trained(), split(), CUP(gamma=0.9, lr=0.05, epochs=10), precision=precision) for _ in range(2)
    )
    whole = unlearn(trained(), split(), CUP(gamma=0.9, lr=0.05, epochs=10))
    assert first.scores.ua >= 0.9
    assert first.history == second.history
    assert first.history != whole.history
    assert {p.dtype for p in first.model.parameters()} == {torch.float32}
    assert (first.provenance["precision"], whole.provenance["precision"]) == (precision, "float32")


def test_a_checkpoint_of_another_precision_is_refused(tmp_path):
    path = tmp_path / "checkpoint.pt"

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_method(trained(), split(), GA(epochs=2), Running(progress=stop, checkpoint=path, checkpoint_seconds=0))
    with pytest.raises(GradPivotError, match="belongs to another run"):
        unlearn(trained(), split(), GA(epochs=2), precision="bfloat16", checkpoint=path)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_half_precision_wants_float32_weights(dtype):
    inputs, labels = blobs().tensors
    data = TensorDataset(inputs.to(dtype), labels)
    chosen = ForgetSplit.by_class(data, data, 0)
    with pytest.raises(GradPivotError, match=r"layers\.0\.weight is (float64|bfloat16)"):
        unlearn(trained().to(dtype), chosen, GA(epochs=1), precision="bfloat16")


def test_unknown_precision():
    with pytest.raises(GradPivotError, match="precision is 'half'; choose one of float32, bfloat16, float16"):
        unlearn(trained(), split(), GA(epochs=1), precision="half")


class TestCompiled:
    """With a backend that compiles nothing: what inductor does is its own affair, and takes half a minute."""

    @pytest.fixture(autouse=True)
    def _eager(self, monkeypatch):
        self.compiled = []

        def compile_(module: nn.Module) -> None:
            def backend(graph, inputs):
                self.compiled.append(module)
                return graph.forward

            module._compiled_call_impl = torch.compile(module._call_impl, backend=backend)

        monkeypatch.setattr(nn.Module, "compile", compile_)
        torch._dynamo.reset()

    def test_same_numbers_same_names_and_an_ordinary_model_afterwards(self):
        plain, compiled = (unlearn(trained(), split(), GA(epochs=1), compile=chosen) for chosen in (False, True))
        assert self.compiled
        assert list(compiled.model.state_dict()) == list(trained().state_dict())
        assert plain.history == compiled.history
        assert compiled.model._compiled_call_impl is None
        assert compiled.provenance["compile"] is True

    def test_evaluation_compiles_nothing(self):
        model = trained()
        model.compile()
        with evaluating(model), torch.no_grad():
            model(torch.zeros(2, 4))
        assert not self.compiled

    def test_a_compiler_that_fails_is_one_line(self, monkeypatch):
        def fails(graph, inputs):
            raise RuntimeError("no C++ compiler\nis here")

        def compile_(module: nn.Module) -> None:
            module._compiled_call_impl = torch.compile(module._call_impl, backend=fails)

        monkeypatch.setattr(nn.Module, "compile", compile_)
        with pytest.raises(GradPivotError, match=r"torch.compile failed \(.*no C\+\+ compiler.*run without"):
            Loop(compile=True).run(GA(epochs=1), trained(), Classification(), split())
