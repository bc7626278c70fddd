"""Scoring an unlearned ResNet-18: one pass for all metrics, channels last, against the usual way.

The usual way: a pass over each set for its accuracy and another for the membership attack, images as they are stored
(NCHW), batches of 256, and scikit-learn's SVC on all points. Claim: ours takes at most half of it, and gives the same
numbers. Both are timed here in turn.

    python benchmarks/evaluation.py [--samples 300] [--repeats 3] [--threads 2] [--json]

N forget, N retain and 1.8 N test images (5,000, 5,000 and 9,000 for a class of CIFAR-10) from the data folder, with
the pretrained weights; random ones and a new network where there is none. Three minutes on two quiet cores.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.svm import SVC
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import Classification, ForgetSplit
from gradpivot.data.order import shuffled
from gradpivot.errors import GradPivotError
from gradpivot.evaluate.classifiers.evaluation import evaluate, fixed_subset
from gradpivot.experiments.problem import find_problem
from gradpivot.models.resnet import resnet18

Numbers = dict[str, float]


def problem(samples: int) -> tuple[nn.Module, ForgetSplit, str]:
    """A network and a split with as many samples as asked for, real if they are here."""
    try:
        found = find_problem("cifar10")
        (train, test), model, kind = found.load(), found.original(), "CIFAR-10"
    except GradPivotError:
        torch.manual_seed(0)
        train, test = (made(20 * samples, seed) for seed in range(2))
        model, kind = resnet18().eval(), "made"
    forgotten = torch.nonzero(train.tensors[1] == 0)[:samples, 0]
    kept = torch.nonzero(test.tensors[1] != 0)[: 9 * samples // 5, 0]
    test = TensorDataset(*(tensor[kept] for tensor in test.tensors))
    return model, ForgetSplit.by_index(train, test, forgotten, data_id=kind), kind


def made(count: int, seed: int) -> TensorDataset:
    draw = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=draw)
    return TensorDataset(images, torch.randint(10, (count,), generator=draw))


@torch.no_grad()
def one_pass(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    parts = [model(some.float() / 255).double().softmax(1).cpu() for some in torch.split(images, 256)]
    told = torch.cat(parts)
    return told.gather(1, labels[:, None])[:, 0].numpy(), (told.argmax(1) == labels).numpy()


def usual(model: nn.Module, split: ForgetSplit, samples: int) -> Numbers:
    """Each metric for itself."""
    retain = fixed_subset(split.retain_indices, samples)
    sets = {
        "forget": [t[torch.from_numpy(split.forget_indices.copy())] for t in split.train.tensors],
        "retain": [t[torch.from_numpy(retain.copy())] for t in split.train.tensors],
        "test": list(split.test.tensors),
    }
    accuracy = {name: float(one_pass(model, *data)[1].mean()) for name, data in sets.items()}
    confidence = {name: one_pass(model, *data)[0] for name, data in sets.items()}
    count = min(len(confidence["retain"]), len(confidence["test"]))
    members = shuffled(confidence["retain"], 0, "members")[:count]
    others = shuffled(confidence["test"], 0, "nonmembers")[:count]
    attack = SVC(C=3, gamma="auto", kernel="rbf")
    attack.fit(np.concatenate([members, others])[:, None], np.repeat([1, 0], count))
    told = float((attack.predict(confidence["forget"][:, None]) == 0).mean())
    return {"ra": accuracy["retain"], "ua": 1 - accuracy["forget"], "ta": accuracy["test"], "mia_svc": told}


def ours(model: nn.Module, split: ForgetSplit, samples: int) -> Numbers:
    scores = evaluate(model, split, Classification(), retain_scored=samples).to_dict()
    return {name: scores[name] for name in ("ra", "ua", "ta", "mia_svc")}


def plain(model: nn.Module) -> nn.Module:
    """The same network as people have it: float images in, weights NCHW."""
    model = copy.deepcopy(model).to(memory_format=torch.contiguous_format)
    model.pixels = nn.Identity()
    return model


def measured(samples: int, repeats: int, clock: Callable[[], float]) -> dict[str, Any]:
    model, split, kind = problem(samples)
    ways = {"the usual way": lambda: usual(plain(model), split, samples), "ours": lambda: ours(model, split, samples)}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    told: dict[str, Numbers] = {}
    for _ in range(repeats):
        for name, way in ways.items():
            start = clock()
            told[name] = way()
            seconds[name].append(clock() - start)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        "data": kind,
        "samples": {"forget": samples, "retain": samples, "test": len(split.test)},
        "scores": told,
        "seconds": medians,
        "ratio": medians["ours"] / medians["the usual way"],
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu", action="store_true", help="CPU seconds, for a busy machine and one thread")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    told = measured(chosen.samples, chosen.repeats, time.process_time if chosen.cpu else time.perf_counter)
    if chosen.json:
        print(json.dumps(told, indent=2))
        return
    print(f"{told['data']} images, {told['samples']}, {told['threads']} threads")
    for name, seconds in told["seconds"].items():
        scores = ", ".join(f"{key} {100 * value:.2f} %" for key, value in told["scores"][name].items())
        print(f"{name:26} {seconds:7.2f} s  {scores}")
    print(f"ours / the usual way {told['ratio']:.3f} (claim: at most 0.5)")


if __name__ == "__main__":
    main()
