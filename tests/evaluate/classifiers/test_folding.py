from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.nn import functional

from gradpivot import Classification
from gradpivot.evaluate.classifiers.folding import fold, foldable, quick_copy
from gradpivot.models.cnn import SmallCNN
from gradpivot.models.resnet import resnet18

IMAGES = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(6) % 4


def lived_in(model: nn.Module, seed: int = 0) -> nn.Module:
    """BatchNorm as training leaves it: no parameter and no statistic at its default."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            drawn = (torch.rand(module.num_features, generator=generator) + 0.5 for _ in range(4))
            for tensor, values in zip(
                (module.weight, module.bias, module.running_mean, module.running_var), drawn, strict=True
            ):
                if tensor is not None:
                    tensor.data.copy_(values)
    return model.eval()


class Head(nn.Sequential):
    """Layers on images, then a linear layer on what remains."""

    def __init__(self, *layers: nn.Module, channels: int = 4) -> None:
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 4))


def quick(model: nn.Module, inputs: torch.Tensor = IMAGES) -> nn.Module | None:
    return quick_copy(model, Classification(), (inputs, LABELS))


def norms_in(model: nn.Module) -> int:
    return sum(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


def assert_same(fast: nn.Module, model: nn.Module, inputs: torch.Tensor = IMAGES) -> None:
    with torch.no_grad():
        torch.testing.assert_close(fast(inputs), model(inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_a_batchnorm_after_a_convolution_is_folded(bias, affine):
    model = lived_in(Head(nn.Conv2d(3, 4, 3, bias=bias), nn.BatchNorm2d(4, affine=affine), nn.ReLU()))
    fast = quick(model)
    assert norms_in(fast) == 0
    assert_same(fast, model)


@pytest.mark.parametrize("groups", [1, 3])
def test_strides_groups_and_dilation_do_not_matter(groups):
    layer = nn.Conv2d(3, 6, 3, stride=2, padding=2, dilation=2, groups=groups)
    model = lived_in(Head(layer, nn.BatchNorm2d(6, eps=0.1), channels=6))
    assert_same(quick(model), model)


def test_a_batchnorm_after_a_linear_layer_is_folded():
    layers = nn.Conv2d(3, 4, 8), nn.Flatten(), nn.Linear(4, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 4)
    model = lived_in(nn.Sequential(*layers))
    fast = quick(model)
    assert norms_in(fast) == 0
    assert_same(fast, model)


@given(st.integers(0, 2**32), st.integers(1, 9), st.booleans())
@settings(max_examples=25, deadline=None)
def test_folding_is_exact_in_double_precision(seed, width, bias):
    torch.manual_seed(seed % 1000)
    model = nn.Sequential(nn.Conv2d(3, width, 3, bias=bias), nn.BatchNorm2d(width)).double()
    lived_in(model, seed)
    folded = copy.deepcopy(model)
    fold(folded, foldable(model))
    with torch.no_grad():
        torch.testing.assert_close(folded(IMAGES.double()), model(IMAGES.double()), rtol=1e-12, atol=1e-12)


def test_a_linear_layer_on_sequences_keeps_its_batchnorm():
    """There BatchNorm1d scales another axis than the layer computes, and here both have the same length."""

    class Sequences(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 5, 4)
            self.linear, self.norm, self.out = nn.Linear(5, 5), nn.BatchNorm1d(5), nn.Linear(25, 4)

        def forward(self, images):
            channels = self.conv(images).mean(3)
            return self.out(self.norm(self.linear(channels)).flatten(1))

    model = lived_in(Sequences())
    assert foldable(model) == [("linear", "norm")]  # all that a trace can tell
    fast = quick(model)
    assert norms_in(fast) == 1
    assert_same(fast, model)


def test_what_is_between_keeps_the_batchnorm():
    class Between(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 4)

        def forward(self, images):
            return self.head(self.norm(functional.relu(self.conv(images))).mean((2, 3)))

    model = lived_in(Between())
    assert foldable(model) == []
    fast = quick(model)
    assert norms_in(fast) == 1
    assert_same(fast, model)


def test_a_batchnorm_first_or_alone_stays():
    assert foldable(lived_in(Head(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)))) == []


def test_an_output_that_is_read_twice_is_not_folded():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 4)

        def forward(self, images):
            hidden = self.conv(images)
            return self.head((self.norm(hidden) + hidden).mean((2, 3)))

    assert foldable(lived_in(Twice())) == []


@pytest.mark.parametrize("shared", ["conv", "norm"])
def test_shared_modules_are_not_folded(shared):
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList([nn.Conv2d(3, 3, 3, padding=1) for _ in range(2)])
            self.norms = nn.ModuleList([nn.BatchNorm2d(3) for _ in range(2)])
            if shared == "conv":
                self.convs[1] = self.convs[0]
            else:
                self.norms[1] = self.norms[0]
            self.head = nn.Linear(3, 4)

        def forward(self, images):
            for conv, norm in zip(self.convs, self.norms, strict=True):
                images = torch.relu(norm(conv(images)))
            return self.head(images.mean((2, 3)))

    model = lived_in(Shared())
    assert foldable(model) == []
    assert_same(quick(model), model)


def test_tied_weights_are_folded_apart():
    first, second = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
    second.weight = first.weight
    model = lived_in(Head(first, nn.BatchNorm2d(3), nn.ReLU(), second, nn.BatchNorm2d(3), channels=3))
    assert len(foldable(model)) == 2
    assert_same(quick(model), model)


def test_weights_that_forward_reads_itself_are_not_folded():
    class Decayed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 4)

        def forward(self, images):
            return self.head(self.norm(self.conv(images)).mean((2, 3))) * self.conv.weight.norm()

    model = lived_in(Decayed())
    assert foldable(model) == []
    assert_same(quick(model), model)


def test_batch_statistics_are_not_folded():
    without = Head(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)).eval()
    assert foldable(without) == []
    training = lived_in(Head(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    training[1].train()
    assert foldable(training) == []


def test_control_flow_on_the_inputs_keeps_the_batchnorm_but_not_the_layout():
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 4)

        def forward(self, images):
            hidden = self.conv(images)
            if hidden.mean() > 0:
                hidden = self.norm(hidden)
            return self.head(hidden.mean((2, 3)))

    model = lived_in(Branching())
    assert foldable(model) == []
    fast = quick(model)
    assert fast.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert_same(fast, model)
    assert_same(fast, model, -IMAGES)


class Viewed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(144, 4)

    def forward(self, images):
        return self.head(self.norm(self.conv(images)).view(images.shape[0], -1))


def test_code_that_does_not_run_channels_last_is_folded_all_the_same():
    model = lived_in(Viewed())
    fast = quick(model)
    assert norms_in(fast) == 0
    assert not fast.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert_same(fast, model)


def test_code_that_neither_traces_nor_runs_channels_last_runs_as_it_is():
    class Counted(Viewed):
        def forward(self, images):
            return super().forward(images[: len(images)])

    assert quick(lived_in(Counted())) is None


def test_the_whole_resnet_folds_and_the_model_stays_as_it_is():
    torch.manual_seed(0)
    model = lived_in(resnet18())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modules = [(name, id(module), module.training) for name, module in model.named_modules()]
    images = (torch.rand(4, 3, 32, 32) * 255).to(torch.uint8)
    fast = quick_copy(model, Classification(), (images, LABELS[:4]))
    assert len(foldable(model)) == norms_in(model) == 20
    assert norms_in(fast) == 0
    with torch.no_grad():
        expected = model(images)
        assert (fast(images) - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert modules == [(name, id(module), module.training) for name, module in model.named_modules()]
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks for module in (*model.modules(), *fast.modules()))


def test_a_copy_that_computes_something_else_is_not_used():
    class Moody(nn.Module):
        """Computes another thing for every copy of itself."""

        copies = 0

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 4)
            self.mood = 0.0

        def __deepcopy__(self, memo):
            type(self).copies += 1
            copied = type(self)()
            copied.load_state_dict(self.state_dict())
            copied.mood = float(type(self).copies)
            return copied.eval()

        def forward(self, images):
            return (
                self.head(self.norm(self.conv(images)).mean((2, 3)))
                + self.mood * images.mean((1, 2, 3))[:, None]
            )

    assert quick(lived_in(Moody())) is None


def test_a_model_that_cannot_be_copied_runs_as_it_is():
    class Held(nn.Sequential):
        def __deepcopy__(self, memo):
            raise TypeError("cannot copy a lock")

    assert quick(lived_in(Held(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))) is None


def test_hooks_half_precision_and_networks_without_convolutions_are_left_alone():
    hooked = lived_in(Head(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    hooked[0].register_forward_hook(lambda module, inputs, output: None)
    assert quick(hooked) is None
    half = lived_in(Head(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))).bfloat16()
    assert quick(half, IMAGES.bfloat16()) is None
    assert quick(lived_in(nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))), torch.rand(6, 5)) is None


def test_outputs_that_are_not_finite_are_left_to_the_model():
    model = lived_in(Head(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    model[1].running_mean[0] = torch.nan
    assert quick(model) is None


def test_without_batchnorm_only_the_layout_changes():
    torch.manual_seed(0)
    model = SmallCNN(3, 8, 4).eval()
    fast = quick(model)
    assert fast.conv2.weight.is_contiguous(memory_format=torch.channels_last)
    assert not model.conv2.weight.is_contiguous(memory_format=torch.channels_last)
    assert_same(fast, model)


def test_dictionaries_of_outputs_are_compared():
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = Head(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))

        def forward(self, images):
            return {"logits": self.body(images), "hidden": [images.mean()]}

    model = lived_in(Named())
    fast = quick(model)
    assert norms_in(fast) == 0
    with torch.no_grad():
        torch.testing.assert_close(fast(IMAGES)["logits"], model(IMAGES)["logits"], rtol=1e-5, atol=1e-5)
