"""Figures hold what they should, draw without global state, and survive missing pieces."""

from __future__ import annotations

import builtins
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.scores import Scores
from gradpivot.report.common import canvas
from gradpivot.report.common.labels import clusters, place_labels
from gradpivot.report.common.plane import plane_front, zoom_box
from gradpivot.report.paper import explain
from gradpivot.report.paper.toy import Panel, toy_figure
from gradpivot.report.run import figures
from gradpivot.results.comparison import Comparison
from gradpivot.results.pareto import hypervolume

pytest.importorskip("matplotlib")
DRAWINGS = [figures.frontier_figure, figures.metrics_figure, figures.conflict_figure]


def texts(figure: Any) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


@pytest.mark.parametrize("suffix", [".svg", *(pytest.param(s, marks=pytest.mark.slow) for s in (".png", ".pdf"))])
@pytest.mark.parametrize("draw", DRAWINGS)
def test_every_figure_saves_the_same_bytes_twice(
    draw: Any, suffix: str, comparison: Comparison, tmp_path: Path
) -> None:
    first, second = (figures.save_figure(draw(comparison), tmp_path / f"{i}{suffix}").read_bytes() for i in range(2))
    assert first == second
    assert len(first) > 4000


def test_other_suffixes_are_refused(comparison: Comparison, tmp_path: Path) -> None:
    with pytest.raises(GradPivotError, match=r"\.pdf, \.svg or \.png"):
        figures.save_figure(figures.metrics_figure(comparison), tmp_path / "a.bmp")


def test_pyplot_is_never_loaded(comparison: Comparison) -> None:
    sys.modules.pop("matplotlib.pyplot", None)
    for draw in DRAWINGS:
        draw(comparison)
    assert "matplotlib.pyplot" not in sys.modules


def test_without_matplotlib_the_error_says_what_to_install(
    comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    for draw in (*DRAWINGS, lambda _: explain.pivot_figure(), lambda _: explain.hypervolume_figure()):
        with pytest.raises(GradPivotError, match=r"-e '.\[figures\]'"):
            draw(comparison)


def test_the_frontier_annotates_gamma_without_overlap(comparison: Comparison) -> None:
    figure = figures.frontier_figure(comparison)
    figure.draw_without_rendering()
    labels = [t for t in figure.axes[1].texts if t.get_text().startswith("γ")]
    boxes = [label.get_window_extent() for label in labels]
    assert len(labels) >= 9
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_the_zoom_holds_the_good_runs(comparison: Comparison) -> None:
    box = zoom_box(comparison.frontiers, [comparison.original])
    assert box is not None
    left, bottom, right, top = box
    assert left > 98
    assert all(left < 100 * p.scores.ra < right for p in comparison.frontiers[0].points)
    assert bottom < 0 < 100 < top


def test_the_zoom_widens_until_something_is_forgotten_in_it(comparison: Comparison) -> None:
    box = zoom_box(comparison.frontiers[2:])  # gradient ascent forgets only where it keeps 70 %
    assert box is not None
    assert box[0] < 75


def test_one_run_and_the_original_fill_the_zoom(comparison: Comparison) -> None:
    one = replace(comparison.frontiers[0], points=comparison.frontiers[0].points[5:6])
    box = zoom_box([one], [comparison.original])
    assert box is not None
    left, bottom, right, top = box
    assert right - left < 5
    assert bottom < 100 * comparison.original.scores.ua < 100 * one.points[0].scores.ua < top


def test_the_joined_points_are_nondominated_in_the_plane(comparison: Comparison) -> None:
    front = plane_front(comparison.frontiers[0])
    assert [p.scores.ra for p in front] == sorted(p.scores.ra for p in front)
    assert [p.scores.ua for p in front] == sorted((p.scores.ua for p in front), reverse=True)


def test_diverged_runs_are_in_the_legend(comparison: Comparison) -> None:
    names = [text.get_text() for text in figures.frontier_figure(comparison).legends[0].get_texts()]
    assert "GA (2 diverged)" in names


@pytest.mark.parametrize("draw", DRAWINGS)
@pytest.mark.slow
def test_missing_pieces_still_draw(draw: Any, build: Any, tmp_path: Path) -> None:
    cup = build().frontiers[0]
    lost = {"scores": Scores.of_diverged(), "diverged": {"step": 1, "reason": "x"}, "history": {}}
    cases = [
        build(retrained=None, frontiers=[replace(cup, reference=None)]),
        build(frontiers=[]),
        build(frontiers=[replace(cup, points=[])]),
        build(frontiers=[replace(cup, points=cup.points[:1])]),
        build(frontiers=[replace(cup, points=[replace(p, **lost) for p in cup.points])]),
        build(frontiers=[replace(cup, knob=None, points=[replace(p, knob=None) for p in cup.points])]),
        build(retrained=None, frontiers=[replace(cup, reference=None, kind="random")]),
        build(frontiers=[replace(cup, points=[replace(cup.points[0], history={"cosine": [None, None]})])]),
    ]
    for i, case in enumerate(cases):
        figures.save_figure(draw(case), tmp_path / f"{i}.png")


def test_figures_say_what_is_missing(build: Any) -> None:
    comparison = build(frontiers=build().frontiers[1:])
    assert any("varies γ" in t.get_text() for t in figures.metrics_figure(comparison).texts)
    assert any("recorded the cosine" in t.get_text() for t in figures.conflict_figure(comparison).texts)


def test_conflict_shows_a_few_gammas_and_zero(comparison: Comparison) -> None:
    figure = figures.conflict_figure(comparison, most=4)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["γ = 0", "γ = 0.3", "γ = 0.7", "γ = 1"]
    assert any(list(line.get_ydata()) == [0, 0] for line in figure.axes[0].lines)


def test_labels_stay_clear_of_each_other_and_of_what_is_taken() -> None:
    anchors = [(50.0, 50.0), (52.0, 50.0), (54.0, 50.0)]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in anchors]
    centres = place_labels(anchors, [(20, 8)] * 3, taken, (0, 0, 200, 200))
    assert all(centres)
    boxes = [(x - 10, y - 4, x + 10, y + 4) for x, y in filter(None, centres)]
    for i, a in enumerate(boxes):
        for b in [*taken, *boxes[:i]]:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_a_label_without_room_is_left_out() -> None:
    assert place_labels([(5.0, 5.0)], [(50, 50)], [], (0, 0, 10, 10)) == [None]


def test_near_points_share_a_label() -> None:
    assert clusters([(0, 0), (1, 0), (50, 0), (2, 0)], radius=5) == [[0, 1, 3], [2]]


def test_the_diverse_algorithm_has_the_larger_hypervolume() -> None:
    figure = explain.hypervolume_figure()
    wide, narrow = hypervolume(explain.DIVERSE), hypervolume(explain.NARROW)
    assert wide > narrow
    assert f"H = {wide:.3f}" in texts(figure)
    assert f"H = {narrow:.3f}" in texts(figure)


@pytest.mark.parametrize("angle", [130, 60])
def test_the_pivot_fan_starts_and_ends_at_the_anchors(angle: float) -> None:
    half = math.radians(angle / 2)
    f, r = (-math.sin(half), math.cos(half)), (0.8 * math.sin(half), 0.8 * math.cos(half))
    keep, forget = explain.pivot_direction(f, r, 0.0), explain.pivot_direction(f, r, 1.0)
    assert keep[0] * f[0] + keep[1] * f[1] == pytest.approx(0, abs=1e-12)
    assert forget[0] * r[0] + forget[1] * r[1] == pytest.approx(0, abs=1e-12)


def test_main_writes_the_figures_of_the_docs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain.main([str(tmp_path / "docs")]) == 0
    names = {path.name for path in (tmp_path / "docs").iterdir()}
    assert names == {"hypervolume.svg", "hypervolume.png", "pivot.svg", "pivot.png"}
    # `make docs` leaves the committed ones as they are.
    for name in ("hypervolume.svg", "pivot.svg"):
        committed = Path(__file__).parents[3] / "docs/figures" / name
        assert committed.read_bytes() == (tmp_path / "docs" / name).read_bytes(), f"run make docs and commit {name}"
    assert explain.main([]) == 2
    assert "usage" in capsys.readouterr().err


def toy_panel(**changes: Any) -> dict[str, Any]:
    values = {"title": "CUP", "grid_labels": [[0, 1], [2, 2]], "extent": (0, 1, 0, 1), "forgotten": 2,
              "points": [[0.1, 0.1], [0.9, 0.1], [0.5, 0.9]], "labels": [0, 1, 2], "caption": "0 %"}  # fmt: skip
    return {**values, **changes}


def test_the_toy_takes_dictionaries_and_panels(tmp_path: Path) -> None:
    figure = toy_figure([toy_panel(), Panel(**toy_panel(title="GA")), toy_panel(), toy_panel()])
    assert [ax.get_title() for ax in figure.axes[:2]] == ["(a) CUP", "(b) GA"]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["class 0", "class 1", "class 2 (to forget)"]
    canvas.save_figure(figure, tmp_path / "toy.pdf")


def test_the_toy_refuses_nonsense() -> None:
    with pytest.raises(GradPivotError, match="at least one panel"):
        toy_figure([])
    with pytest.raises(GradPivotError, match="titel"):
        toy_figure([{"titel": "x"}])


def test_pairs_of_colour_and_marker_do_not_repeat_soon() -> None:
    assert len({canvas.series(i) for i in range(20)}) == 20
