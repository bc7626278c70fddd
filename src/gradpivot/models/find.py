"""Find a model by name: built in, an import path, or from timm or torchvision if installed."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.models.images import Images
from gradpivot.runtime import describe_error, import_path

if TYPE_CHECKING:
    from torch import nn

__all__ = ["find_model", "list_models"]

_BUILT_IN = {
    "resnet18": "gradpivot.models.resnet:resnet18",
    "resnet20": "gradpivot.models.resnet:resnet20",
    "resnet56": "gradpivot.models.resnet:resnet56",
    "small": "gradpivot.models.small:small_resnet",
    "cnn": "gradpivot.models.cnn:SmallCNN",
}
_OWN = "my_module:make_model, a function without arguments that returns a new torch.nn.Module"


def list_models() -> list[str]:
    """The names of the built-in models."""
    return list(_BUILT_IN)


def find_model(name: str, images: Images | None = None, normalise: str | None = None) -> Callable[[], nn.Module]:
    """Return a function that makes a new model with random weights.

    If images are stored as bytes or ``normalise`` is given, wraps a model that has no
    :class:`~gradpivot.models.pixels.Pixels` in one.

    Args:
        name: One of :func:`list_models`; ``package.module:function``, called without arguments; ``timm:NAME``; or
            ``torchvision:NAME``.
        images: Description of the images; optional only for import paths.
        normalise: Normalisation to use instead of that of ``images``; see :meth:`Images.normalised`.

    Raises:
        GradPivotError: if there is no such model or, when the function is called, if making it fails.
    """
    source, _, rest = name.partition(":")
    if normalise is not None:
        images = _known(name, images).normalised(normalise)
    if name in _BUILT_IN:
        make = _built_in(name, _known(name, images))
    elif source in _LIBRARIES and rest:
        make = _LIBRARIES[source](rest, _known(name, images))
    elif rest:
        make = _own(name)
    else:
        hint = did_you_mean(name, _BUILT_IN)
        raise GradPivotError(
            f"there is no model {name!r}{hint} Choose from {', '.join(_BUILT_IN)}, timm:NAME, torchvision:NAME, or "
            f"pass {_OWN}"
        )
    return partial(_made, name, make, images, normalise is not None)


def _made(name: str, make: Callable[[], Any], images: Images | None, chosen: bool) -> nn.Module:
    """Make and check a model; wrap it in Pixels if needed."""
    from torch import nn
    from torch.nn.parameter import is_lazy

    from gradpivot.models.pixels import OnPixels, Pixels

    try:
        model = make()
    except GradPivotError:
        raise
    except Exception as error:
        raise GradPivotError(f"making the model {name} failed: {describe_error(error)}") from error
    if not isinstance(model, nn.Module):
        raise GradPivotError(f"{name} returned a {type(model).__name__}; it must return a torch.nn.Module")
    if any(is_lazy(parameter) for parameter in model.parameters()):
        raise GradPivotError(f"the model {name} has lazy layers; run it once on an example before you return it")
    has_own = any(isinstance(module, Pixels) for module in model.modules())
    if has_own and chosen and name not in _BUILT_IN:
        raise GradPivotError(
            f"the model {name} has its own Pixels layer; set the normalisation there instead of with normalise"
        )
    if has_own or images is None or not images.need_pixels:
        return model
    return OnPixels(images.pixels(), model)


def _known(name: str, images: Images | None) -> Images:
    if images is None:
        raise GradPivotError(
            f"the model {name} needs the images' channels, size and classes; set images=Images(…) in the Problem, or "
            f"use {_OWN}"
        )
    return images


def _built_in(name: str, images: Images) -> Callable[[], Any]:
    module, _, function = _BUILT_IN[name].partition(":")
    make = getattr(importlib.import_module(module), function)
    if name == "cnn":
        return partial(make, channels=images.channels, size=images.size, classes=images.classes)
    return lambda: make(images.classes, images.pixels(), channels=images.channels)


def _own(name: str) -> Callable[[], Any]:
    from torch import nn

    found = import_path(name)
    if isinstance(found, nn.Module):
        raise GradPivotError(
            f"{name} is a model instance, but retraining needs a new one each time; pass {_OWN}, and trained weights "
            f"with --weights"
        )
    if not callable(found):
        raise GradPivotError(f"{name} is a {type(found).__name__}; pass {_OWN}")
    return found  # type: ignore[no-any-return]


def _library(name: str) -> Any:
    """Import an optional package."""
    import torch

    top = name.partition(".")[0]
    try:
        importlib.import_module(top)
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == top:
            raise GradPivotError(f"{top} is not installed; pip install {top}") from None
        raise GradPivotError(f"{name} cannot be imported: {describe_error(error)}") from error
    except Exception as error:
        # torchvision's operators are compiled for one torch: with another, "operator torchvision::nms does not exist".
        raise GradPivotError(
            f"{name} cannot be imported ({describe_error(error)}); install the version that belongs to torch "
            f"{torch.__version__}"
        ) from error


def _timm(name: str, images: Images) -> Callable[[], Any]:
    timm = _library("timm")
    # The tag after the dot names pretrained weights, which are not used.
    _refuse_unknown("timm", name.partition(".")[0], timm.list_models())
    return partial(timm.create_model, name, pretrained=False, num_classes=images.classes, in_chans=images.channels)


def _torchvision(name: str, images: Images) -> Callable[[], Any]:
    models = _library("torchvision.models")
    # Top-level models only: submodules hold detection and segmentation models.
    _refuse_unknown("torchvision", name, models.list_models(module=models))
    if images.channels != 3:
        raise GradPivotError(
            f"torchvision's models take 3 channels, but the images have {images.channels}; use timm:NAME or {_OWN}"
        )
    return partial(models.get_model, name, weights=None, num_classes=images.classes)


def _refuse_unknown(library: str, name: str, known: list[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, 3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise GradPivotError(f"{library} has no model {name!r}{hint}")


_LIBRARIES: dict[str, Callable[[str, Images], Callable[[], Any]]] = {"timm": _timm, "torchvision": _torchvision}
