"""Progress in a log."""

import pytest

from gradpivot.runtime import LogLines, duration
from gradpivot.runtime.progress import bar


def test_a_log_gets_a_line_every_ten_seconds(capsys):
    now = 0.0
    report = LogLines("Training", clock=lambda: now)
    for second in range(1, 41):
        now = float(second)
        report(second, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "Training: 10/100, 90 s left".replace("90 s", "2 min"),
        "Training: 20/100, 80 s left",
        "Training: 30/100, 70 s left",
        "Training: 40/100, 60 s left",
    ]


def test_a_short_run_writes_nothing(capsys):
    with bar("Training") as report:
        report(1, 2)
        report(2, 2)
    assert capsys.readouterr().err == ""


def test_bytes_are_counted_in_megabytes(capsys):
    now = 0.0
    report = LogLines("Getting mnist", in_bytes=True, clock=lambda: now)
    report(0, 50_000_000)
    now = 10.0
    report(25_000_000, 50_000_000)
    assert capsys.readouterr().err == "Getting mnist: 25 of 50 MB, 10 s left\n"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (7500, "2 h 5 min")])
def test_durations_read_naturally(seconds, text):
    assert duration(seconds) == text
