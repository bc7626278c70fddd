from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

from gradpivot.errors import GradPivotError
from gradpivot.models.find import find_model, list_models
from gradpivot.models.images import Images
from gradpivot.models.pixels import OnPixels, Pixels
from gradpivot.models.resnet import resnet18

COLOUR = Images(channels=3, size=32, classes=4)
GREY = Images(channels=1, size=8, classes=10, stored="floats")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module that can be imported, under a name of its own, and forget it afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    names = []

    def write(name: str, code: str) -> str:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(code))
        names.append(name)
        return name

    yield write
    for name in list(sys.modules):
        if name.partition(".")[0] in {known.partition(".")[0] for known in names}:
            del sys.modules[name]


@pytest.mark.parametrize("name", list_models())
def test_built_in_models_take_bytes_and_have_the_problems_classes(name):
    model = find_model(name, COLOUR)().eval()
    assert model(torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)).shape == (2, 4)
    assert find_model(name, GREY)().eval()(torch.rand(2, 1, 8, 8)).shape == (2, 10)


def test_every_call_makes_a_new_model():
    make = find_model("cnn", GREY)
    assert make() is not make()


def test_the_default_model_of_cifar10_by_name_is_that_model():
    assert find_model("resnet18", Images())().state_dict().keys() == resnet18().state_dict().keys()


def test_a_model_of_ones_own_goes_behind_pixels_where_images_are_bytes(module):
    own = module("own_net", "def make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 4))\n")
    model = find_model(f"{own}:make", COLOUR)()
    assert isinstance(model, OnPixels)
    assert set(model.state_dict()) == {"model.1.weight", "model.1.bias"}
    pixels = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
    assert torch.equal(model(pixels), model.model(pixels.float() / 255))
    # Floating-point data, and problems that say nothing, need none.
    assert isinstance(find_model(f"{own}:make", GREY)(), nn.Sequential)
    assert isinstance(find_model(f"{own}:make")(), nn.Sequential)


def test_models_that_flatten_with_view_work_behind_pixels(module):
    own = module(
        "own_view",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(8 * 900, 4)
            def forward(self, images):
                hidden = self.conv(images)
                return self.fc(hidden.view(len(hidden), -1))
        """,
    )
    assert find_model(f"{own}:Net", COLOUR)()(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape == (2, 4)


def test_a_model_with_its_own_pixels_is_left_alone(module):
    own = module(
        "own_pixels",
        "from gradpivot.models.pixels import Pixels\n"
        "def make():\n    return nn.Sequential(Pixels(), nn.Flatten(), nn.Linear(3072, 4))\n",
    )
    assert isinstance(find_model(f"{own}:make", COLOUR)(), nn.Sequential)
    with pytest.raises(GradPivotError, match="its own Pixels layer"):
        find_model(f"{own}:make", COLOUR, "imagenet")()


def test_normalisation_by_name_and_by_numbers():
    named = find_model("resnet20", COLOUR, "imagenet")()
    assert named.pixels.mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])
    numbers = find_model("cnn", COLOUR, "0.5/0.25")()
    assert torch.allclose(numbers.pixels(torch.full((1, 3, 2, 2), 0.75)), torch.ones(1, 3, 2, 2))
    # Floating-point data are normalised too if somebody asks for it.
    assert isinstance(find_model("cnn", GREY, "0.5/0.25")().pixels, Pixels)


BAD = """
number = 3
model = nn.Linear(2, 2)
def none(): return None
def kind(): return nn.Linear
def needs(size): return nn.Linear(size, 2)
def raises(): raise ValueError("my\\nmistake")
def lazy(): return nn.LazyLinear(3)
class Parts:
    inner = 3
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet19", "did you mean 'resnet18'.*my_module:make_model"),
        ("resnet18:", "there is no model 'resnet18:'"),
        ("no_such_module:f", "no module named 'no_such_module'"),
        ("bad_models:nonne", "no attribute 'nonne'; did you mean 'none'"),
        ("bad_models:Parts.outer", "no attribute 'Parts.outer'"),
        ("bad_models:number", "is a int; pass my_module:make_model"),
        ("bad_models:model", "is a model instance"),
        ("bad_models:none", "returned a NoneType"),
        ("bad_models:kind", "returned a type"),
        ("bad_models:needs", "missing 1 required positional argument"),
        ("bad_models:raises", "ValueError: my mistake"),
        ("bad_models:lazy", "lazy layers"),
        ("bad_syntax:f", "importing bad_syntax failed: SyntaxError"),
        ("bad_import:f", "importing bad_import failed: ModuleNotFoundError: No module named 'not_there'"),
        ("bad_exit:f", "importing bad_exit failed: SystemExit: 2"),
        ("timm:resnet18", "timm is not installed; pip install timm"),
        ("torchvision:resnet18", "torchvision is not installed; pip install torchvision"),
    ],
)
def test_what_cannot_be_made_is_one_line(name, message, module, monkeypatch):
    module("bad_models", BAD)
    module("bad_syntax", "def f(:\n")
    module("bad_import", "import not_there\n")
    module("bad_exit", "import sys\nsys.exit(2)\n")
    for library in ("timm", "torchvision"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(GradPivotError, match=message) as caught:
        find_model(name, COLOUR)()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["resnet18", "timm:resnet18", "torchvision:resnet18"])
def test_a_problem_that_says_nothing_of_its_images(name):
    with pytest.raises(GradPivotError, match="set images=Images"):
        find_model(name)


TIMM = """
def list_models(): return ["resnet18", "resnet34"]
class Net(nn.Module):
    def __init__(self, given):
        super().__init__()
        self.given = given
        self.fc = nn.Linear(given["in_chans"], given["num_classes"])
    def forward(self, images): return self.fc(images.mean((2, 3)))
def create_model(name, pretrained=False, num_classes=1000, in_chans=3):
    return Net(dict(name=name, pretrained=pretrained, num_classes=num_classes, in_chans=in_chans))
"""
TORCHVISION = """
import sys
def resnet18(weights=None, num_classes=1000):
    net = nn.Sequential(nn.Flatten(), nn.Linear(3072, num_classes))
    net.weights = weights
    return net
def list_models(module=None): return ["resnet18"] if module is sys.modules[__name__] else ["resnet18", "fcn_resnet50"]
def get_model(name, **config): return globals()[name](**config)
"""


def test_models_of_timm(module):
    """A stand-in with timm's signatures: there is no build of it for this torch here."""
    module("timm", TIMM)
    model = find_model("timm:resnet18.a1_in1k", Images(channels=1, classes=5))()
    assert model.model.given == {
        "name": "resnet18.a1_in1k", "pretrained": False, "num_classes": 5, "in_chans": 1,
    }  # fmt: skip
    assert model(torch.zeros(2, 1, 32, 32, dtype=torch.uint8)).shape == (2, 5)
    with pytest.raises(GradPivotError, match="no model 'resnet35'; did you mean resnet34, resnet18"):
        find_model("timm:resnet35", COLOUR)


def test_models_of_torchvision(module):
    """A stand-in with torchvision's signatures."""
    module("torchvision.__init__", "")
    module("torchvision.models", TORCHVISION)
    model = find_model("torchvision:resnet18", COLOUR)()
    assert model(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape == (2, 4)
    assert model.model.weights is None
    with pytest.raises(GradPivotError, match="no model 'fcn_resnet50'"):
        find_model("torchvision:fcn_resnet50", COLOUR)
    with pytest.raises(GradPivotError, match="3 channels, but the images have 1"):
        find_model("torchvision:resnet18", GREY)


def test_a_torchvision_of_another_torch(module):
    module("torchvision.__init__", "raise RuntimeError('operator torchvision::nms does not exist')\n")
    with pytest.raises(GradPivotError, match=r"nms does not exist.*belongs to torch 2"):
        find_model("torchvision:resnet18", COLOUR)


def test_the_documented_model_runs(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "docs" / "examples")
    model = find_model("my_model:make_model", Images())()
    assert not isinstance(model, OnPixels)
    assert model(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape == (2, 10)
