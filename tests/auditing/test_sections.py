from __future__ import annotations

import base64
import json

import numpy as np
import pytest
import torch

import planted
from gradpivot.auditing.sections import page_sections, picture
from gradpivot.auditing.subject import Subject
from gradpivot.data import ForgetSplit, png_size
from gradpivot.results import Finding
from gradpivot.testing.problems import blobs, trained


@pytest.fixture(scope="module")
def sections():
    return page_sections(planted.case(planted.masked(planted.original())), [])


def test_everything_is_json(sections):
    assert json.loads(json.dumps(sections, allow_nan=False)) == sections
    assert set(sections) == {"classes", "neighbours", "harmed", "calibration", "examples", "records"}


def test_classes_cover_the_whole_test_set(sections):
    rows = sections["classes"]
    assert [row["class"] for row in rows] == list(range(10))
    assert sum(row["n"] for row in rows) == len(planted.class_split().test)
    assert [row["class"] for row in rows if row["forgotten"]] == [planted.FORGOTTEN]
    forgotten = rows[planted.FORGOTTEN]
    assert forgotten["audited"] == forgotten["retrained"] == 0
    assert forgotten["original"] > 0.5


def test_neighbours_are_shares(sections):
    found = sections["neighbours"]
    at = found["classes"].index(planted.FORGOTTEN)
    assert found["audited"][at] == found["retrained"][at] == 0
    assert all(sum(found[role]) == pytest.approx(1) for role in ("audited", "retrained", "original"))


def test_records_come_most_exposed_first(sections):
    scores = [row["score"] for row in sections["records"]]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == min(50, len(planted.class_split().forget_indices))
    assert {row["label"] for row in sections["records"]} == {planted.FORGOTTEN}


def test_scores_of_an_attack_per_record_come_first():
    split = planted.class_split()
    index = split.forget_indices[[4, 2]].tolist()
    details = {"records": {"index": index, "score": [0.9, 0.8]}}
    found = Finding(name="rmia", title="", question="membership", meaning="", value=0.5, details=details)
    rows = page_sections(planted.case(planted.original()), [found])["records"]
    assert [(row["index"], row["score"]) for row in rows[:3]] == [
        (index[0], 0.9),
        (index[1], 0.8),
        (rows[2]["index"], None),
    ]


def test_harmed_records_lost_confidence():
    rows = page_sections(planted.case(planted.destroyed()), [])["harmed"]
    drops = [row["before"] - row["after"] for row in rows]
    assert len(rows) == 10
    assert drops == sorted(drops, reverse=True)
    assert drops[-1] > 0
    assert {row["index"] for row in rows} <= set(planted.class_split().retain_indices.tolist())


def test_examples_show_every_model_and_an_image(sections):
    assert len(sections["examples"]) == 8
    for row in sections["examples"]:
        assert row["original"]["predicted"] == planted.FORGOTTEN != row["audited"]["predicted"]
        assert png_size(base64.b64decode(row["image"].partition(",")[2])) == (8, 8)


def test_a_model_alone_on_data_that_are_no_images():
    subject = Subject(model=trained(), split=ForgetSplit.random(blobs(), blobs(seed=1), 0.1))
    found = page_sections(subject, [])
    assert found["harmed"] == []
    assert found["neighbours"]["retrained"] is None
    assert found["classes"][0]["original"] is None
    assert not found["classes"][0]["forgotten"]
    assert {row["image"] for row in found["records"]} == {None}


@pytest.mark.parametrize(
    ("values", "size"),
    [
        (torch.rand(1, 8, 8), (8, 8)),
        (torch.randn(3, 10, 8), (8, 10)),
        (torch.rand(28, 28), (28, 28)),
        (torch.rand(784), (28, 28)),
        (torch.randint(0, 256, (64,), dtype=torch.uint8), (8, 8)),
        (np.random.default_rng(0).random((3, 224, 224)), (56, 56)),
        (torch.zeros(1, 8, 8), (8, 8)),
    ],
)
def test_images_are_shown(values, size):
    uri = picture(values)
    assert uri.startswith("data:image/png;base64,")
    assert png_size(base64.b64decode(uri.partition(",")[2])) == size


@pytest.mark.parametrize(
    "values",
    [
        torch.rand(4),
        torch.rand(65),
        torch.randn(64) * 9,
        torch.rand(5, 8, 8),
        torch.full((1, 8, 8), float("nan")),
        {"tokens": torch.rand(64)},
        "text",
        torch.rand(0),
    ],
)
def test_what_is_no_image_is_not(values):
    assert picture(values) is None
