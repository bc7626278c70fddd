"""Settings of all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

from gradpivot.evaluate.scores import Scores
from gradpivot.results.frontier import Point
from gradpivot.results.record import Record

# A problem to sweep, for tests/sweep and tests/cli; data sets to get, for tests/data and tests/cli; two real processes,
# for tests/test_parallel.py and tests/test_sharding.py.
pytest_plugins = ["lab", "made_data", "replicas"]

# Nobody's run fails by luck: every run draws the same examples, and a busy machine may be slow. New examples are drawn
# by `make fuzz`; pin what it finds with @example.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, **PATIENT)
settings.register_profile("fuzz", max_examples=300, print_blob=True, **PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# Of every method these take half of the contract's time; in `make check` CUP stands for all.
CONTRACT_SLOW = ("test_interrupted_and_resumed_equals_uninterrupted", "test_workers_change_nothing")


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # MethodContract is shipped, and knows nothing of our markers.
        name = getattr(item, "originalname", None)
        if name == "test_forgets_and_keeps":
            item.add_marker(pytest.mark.numeric)
        if name in CONTRACT_SLOW and "::TestCUP::" not in item.nodeid:
            item.add_marker(pytest.mark.slow)


# Shells start background jobs deaf to Ctrl-C, and children inherit that; tests that press it need it heard.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Bit-identical repeats are promised for one thread count; small models are fastest with one.
torch.set_num_threads(1)


def build_record(role: str = "run", scores: Sequence[float] | None = (1, 1, 1, 1), **changes: Any) -> Record:
    """A finished run with these RA, UA, TA, MIA (and MIA of the SVC); None for one that diverged."""
    name = {"original": "Original", "retrained": "Retrain"}.get(role, "CUP")
    values: dict[str, Any] = {
        "problem": "digits", "kind": "class", "forget": "3", "seed": 0, "role": role, "series": name,
        "protocol": "clean" if role == "run" else "", "method": name.lower(),
    }  # fmt: skip
    point = {"label": name, "settings": {}, "seconds": 1.0, "determined": True, "knob": None}
    point |= {key: changes.pop(key) for key in tuple(changes) if key in point}
    values |= changes
    determined = point.pop("determined")
    if scores is None:
        lost = {"step": 1, "reason": "loss is not finite"}
        found = Point(scores=Scores.of_diverged(), diverged=lost, **point)
    else:
        ra, ua, ta, mia, *svc = map(float, scores)
        found = Point(
            scores=Scores(ra=ra, ua=ua, ta=ta, mia=mia, mia_svc=svc[0] if svc else mia, mia_svc_accuracy=0.9,
                          mia_svc_determined=determined, n_forget=100, n_retain=900, n_test=300),
            **point,
        )  # fmt: skip
    key = values.pop("key", None) or repr((sorted(values.items(), key=str), point, scores))
    return Record(key=key, point=found, **values)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that a package with entry points is installed: ``install("gradpivot.engines", inline="my:start")``."""

    def installed(group: str, **named: str) -> None:
        info = tmp_path / "site" / "somebody_s-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody_s\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in named.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
        monkeypatch.syspath_prepend(info.parent)

    return installed


@pytest.fixture(scope="session")
def record() -> Callable[..., Record]:
    """The builder of finished runs: ``record("run", (1, 1, 1, 1), series="WS", seed=2)``."""
    return build_record


@pytest.fixture(scope="session")
def sweep() -> list[Record]:
    """Two protocols, two classes, three seeds; CUP along γ at two rates, WS and a method with an awkward name."""
    found = []
    for forget in ("3", "10"):
        for seed in range(3):
            place = {"forget": forget, "seed": seed}
            found.append(build_record("original", (1, 0, 0.95, 0.02), seconds=0.0, **place))
            found.append(build_record("retrained", (1, 1, 0.94, 0.99), seconds=50.0, **place))
            for protocol in ("paper", "clean"):
                for i in range(12):
                    found += _runs(i, 0.01 * seed, protocol=protocol, **place)
    return found


def _runs(i: int, shift: float, **place: Any) -> list[Record]:
    gamma, lr = (i % 6) / 5, (0.01, 0.1)[i // 6]
    cup = None if (gamma, lr, place["seed"]) == (1, 0.1, 2) else (1 - 0.1 * gamma**2 - shift, gamma, 0.9, gamma, 0.5)
    ws = (0.97 - 0.3 * gamma - shift, min(1, 1.5 * gamma), 0.9, gamma)
    dial, rate = {"gamma": gamma, "lr": lr, "epochs": 5}, {"forget_weight": gamma, "lr": lr}
    return [
        build_record("run", cup, settings=dial, knob=gamma, label=f"CUP({gamma}, {lr})", seconds=2.0, **place),
        build_record("run", ws, series="WS", settings=rate, knob=gamma, label=f"WS({gamma}, {lr})", **place),
        build_record("run", ws, series="_A_&_$B$ {50 %} [red] <i>", settings=rate, knob=gamma, determined=False,
                     label=f"x({gamma}, {lr})", **place),
    ]  # fmt: skip
