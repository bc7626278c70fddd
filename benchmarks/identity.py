"""The gate before a refactoring lands: do runs still end in the same weights, bit for bit?

    python benchmarks/identity.py record before.json    # on the code as it was
    python benchmarks/identity.py check before.json     # on the changed code, same machine and thread count

Every method on digits (a class and a random tenth), CUP by degree and by angle, targets, a quick trace, BatchNorm
policies, a VAE and a tiny diffusion model: about eighty runs in a minute of one core. Everything here is written
against the public API, so that one script runs on both sides of a move.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import CUP, Classification, Diffusion, ForgetSplit, Retrain, list_methods, trace, unlearn
from gradpivot.methods.registry import make_method

Run = Callable[[], nn.Module]
SHORT = {"epochs": 2, "batch_size": 16}
WANTS_MORE = {"retrain": {"epochs": 3, "batch_size": 64}, "iu": {}, "ssd": {}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "check"))
    parser.add_argument("file", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = {name: digest(run()) for name, run in runs()}
    if asked.action == "record":
        asked.file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{len(found)} runs recorded in {asked.file}")
        return 0
    known = json.loads(asked.file.read_text(encoding="utf-8"))
    different = sorted(name for name in known if found.get(name) != known[name])
    new = sorted(set(found) - set(known))
    print(f"{len(known) - len(different)} of {len(known)} runs end in the same weights")
    for name in different:
        print(f"  DIFFERENT: {name}" if name in found else f"  MISSING: {name}")
    for name in new:
        print(f"  new, not compared: {name}")
    return 1 if different else 0


def digest(model: nn.Module) -> str:
    """The state dictionary's content."""
    content = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        content.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return content.hexdigest()[:16]


def runs() -> Iterator[tuple[str, Run]]:
    """Every run by its name."""
    yield from _methods()
    yield from _dial()
    yield from _policies()
    yield from _generators()


def _methods() -> Iterator[tuple[str, Run]]:
    model, splits = trained(network()), digit_splits()
    for name in list_methods():
        if name == "sa":
            continue
        for kind, split in splits.items():
            method = make_method({"method": name, **WANTS_MORE.get(name, SHORT)})
            yield f"{name}, {kind}", lambda m=method, s=split: unlearn(model, s, m, factory=network).model


def _dial() -> Iterator[tuple[str, Run]]:
    model, splits = trained(network()), digit_splits()
    chosen = {f"γ = {gamma}": CUP(gamma=gamma, **SHORT) for gamma in (0.0, 0.2, 0.9, 1.0)}
    chosen |= {f"angle {gamma}": CUP(gamma=gamma, dial="angle", **SHORT) for gamma in (0.1, 0.6)}
    chosen |= {
        "printed": CUP.protocol("paper", gamma=0.3),
        "Adam": CUP(optimizer="adam", **SHORT),
        "masked": CUP(saliency=0.3, momentum=0.5, shrink=1.0, **SHORT),
        "random labels": CUP(objective="random_label", **SHORT),
    }
    for name, method in chosen.items():
        for kind, split in splits.items():
            yield f"CUP {name}, {kind}", lambda m=method, s=split: unlearn(model, s, m, seed=1).model
    for kind, split in splits.items():
        yield (
            f"until UA>=60, {kind}",
            lambda s=split: unlearn(model, s, CUP(**SHORT), until="UA>=60" if s.kind == "class" else "UA>=2").model,
        )
        yield (f"quick trace, {kind}", lambda s=split: trace(model, s, CUP(**SHORT), quick=True).results[5].model)


def _policies() -> Iterator[tuple[str, Run]]:
    def normalised() -> nn.Module:
        return network(nn.BatchNorm2d(8), nn.Dropout(0.1))

    model, splits = trained(normalised()), digit_splits()
    for policy in ("frozen", "train", "recalibrate"):
        for name in ("cup", "ws"):
            method = make_method({"method": name, "batchnorm": policy, **SHORT})
            yield (f"{name} with BatchNorm {policy}", lambda m=method: unlearn(model, splits["class"], m).model)


def _generators() -> Iterator[tuple[str, Run]]:
    from gradpivot.models.ddpm import small_unet
    from gradpivot.models.vae import VAE
    from gradpivot.tasks.vae import Autoencoding

    split = ForgetSplit.by_class(patches(0), patches(1), 1)
    settings = {"epochs": 2, "batch_size": 10}
    torch.manual_seed(0)
    autoencoder, unet = VAE(2, (16, 8), size=8), small_unet(size=8, classes=3)
    diffusion = Diffusion(classes=3, timesteps=50)
    yield (
        "VAE, CUP by angle",
        lambda: (
            unlearn(autoencoder, split, CUP(dial="angle", objective="hinge", **settings), task=Autoencoding()).model
        ),
    )
    for name in ("cup", "ws", "salun", "sa"):
        method = make_method({"method": name, "lr": 1e-3, **settings})
        yield f"diffusion, {name}", lambda m=method: unlearn(unet, split, m, task=diffusion).model


def network(*more: nn.Module) -> nn.Module:
    """A small CNN for 8×8 digits."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), *more, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)
    )


def trained(model: nn.Module) -> nn.Module:
    """The model after a short training on all digits."""
    split = digit_splits()["class"]
    everything = ForgetSplit.by_index(split.train, split.test, [0])
    recipe = Retrain(epochs=4, batch_size=32, lr=0.05)
    return unlearn(model, everything, recipe, task=Classification()).model.eval()


def digit_splits() -> dict[str, ForgetSplit]:
    """A class and a random tenth of the digits."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    train, test = (TensorDataset(images[part], torch.tensor(labels[part])) for part in (slice(400, 1200), slice(400)))
    return {"class": ForgetSplit.by_class(train, test, 3), "random": ForgetSplit.random(train, test, 0.1)}


def patches(seed: int) -> TensorDataset:
    """Images that are bright in another quarter for each class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(60) % 3
    images = torch.randint(0, 60, (60, 1, 8, 8), generator=generator)
    for image, label in zip(images, labels, strict=True):
        row, column = 4 * (int(label) // 2), 4 * (int(label) % 2)
        image[0, row : row + 4, column : column + 4] += 180
    return TensorDataset(images.to(torch.uint8), labels)


if __name__ == "__main__":
    sys.exit(main())
