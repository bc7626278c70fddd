"""gradpivot report on everything people may point it at."""

import pytest

from gradpivot.cli import main

RUN = ["--problem", "toy", "--classes", "2", "--epochs", "1"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_folder_gets_a_page(here, capsys):
    # Runs this short may not reach their degree.
    assert main(["unlearn", "cup", *RUN, "--out", "run"]) in (0, 4)
    capsys.readouterr()
    assert main(["report", "run"]) == 0
    assert "report.html" in capsys.readouterr().out
    page = (here / "run" / "report.html").read_text(encoding="utf-8")
    assert "<h1>Forgetting class 2 of toy</h1>" in page
    assert "CUP at γ = 0.5 forgets" in page
    assert "1 run<" in page
    assert "1 runs" not in page
    assert "click a γ point" not in page
    # The page follows the run, not an earlier report.
    assert main(["unlearn", "cup", *RUN, "--gamma", "0.7", "--out", "run", "--overwrite"]) in (0, 4)
    assert main(["report", "run"]) == 0
    assert "CUP at γ = 0.7 forgets" in (here / "run" / "report.html").read_text(encoding="utf-8")


def test_a_run_without_a_knob_is_named_once(here, capsys):
    assert main(["unlearn", "retrain", *RUN, "--out", "run"]) == 0
    assert main(["report", "run"]) == 0
    assert '<p id="verdict">Retrain(' in (here / "run" / "report.html").read_text(encoding="utf-8")


def test_a_trace_folder_and_its_results_give_the_same_page(here, capsys):
    assert main(["trace", "cup", *RUN, "--values", "0", "1", "--no-reference", "--out", "trace"]) == 0
    page = (here / "trace" / "report.html").read_bytes()
    for target in ("trace", "trace/results.json"):
        assert main(["report", target, "--out", "again"]) == 0
        assert (here / "again" / "report.html").read_bytes() == page


def test_another_trace_does_not_replace_the_page_of_the_first(here, capsys):
    words = ["trace", "cup", *RUN, "--values", "0", "1", "--no-reference", "--out", "trace"]
    assert main(words) == 0
    assert main(words) == 0
    page = (here / "trace" / "report.html").read_bytes()
    for changed in (["--lr", "0.5"], ["--classes", "1"], ["--objective", "hinge"]):
        assert main([*words, *changed]) == 1
        assert "holds a trace with other settings; name another folder with --out" in capsys.readouterr().err
    assert (here / "trace" / "report.html").read_bytes() == page


def test_a_missing_folder_is_explained(here, capsys):
    assert main(["report", "runs/nothere"]) == 1
    assert capsys.readouterr().err == (
        "gradpivot: there is no folder runs/nothere; 'gradpivot unlearn', 'trace' and 'demo' write one with --out\n"
    )


@pytest.mark.parametrize(
    ("file", "advice"),
    [("store.json", "gradpivot compare"), ("notes.txt", "a folder from demo, trace, unlearn or audit")],
)
def test_a_folder_without_results_is_explained(file, advice, here, capsys):
    (here / "folder").mkdir()
    (here / "folder" / file).write_text("{}")
    assert main(["report", "folder"]) == 1
    assert advice in capsys.readouterr().err


def test_the_page_of_an_audit_is_rebuilt(here, capsys):
    from gradpivot.report import write_audit
    from made_audit import made_audit

    write_audit(made_audit(), "evidence")
    page = (here / "evidence/audit.html").read_bytes()
    for target in ("evidence", "evidence/audit.json"):
        assert main(["report", target, "--out", "again"]) == 0
        assert (here / "again/audit.html").read_bytes() == page
    assert "Is the rest intact?" in capsys.readouterr().out
