"""Figures of standings hold what they should, with any names and any number of series."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from gradpivot.report.common.canvas import blank_figure, mpl_text, save_figure
from gradpivot.report.standings.figures import (
    dial_figure,
    hypervolumes_figure,
    methods_figure,
    standings_figures,
    versus_figure,
)
from gradpivot.report.standings.plane import attainment_surface, cloud, common_front, table_clouds, view_box
from gradpivot.results._standings import Standings, standings
from gradpivot.results.record import Record

pytest.importorskip("matplotlib")
Build = Callable[..., Record]
AWKWARD = "_A_&_$B$ {50 %} [red] <i>"


@pytest.fixture(scope="module")
def found(sweep: list[Record]) -> Standings:
    return standings(sweep)


def shown_texts(figure: Any) -> list[str]:
    figure.canvas.draw()
    legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    return legends + [ax.get_title(loc="left") for ax in figure.axes]


def test_every_figure_there_is_something_for(found: Standings) -> None:
    assert list(standings_figures(found)) == [
        "digits-class-wise-hypervolumes", "digits-class-wise-gamma-cup",
        "digits-class-wise-paper-methods", "digits-class-wise-paper-cup-ws",
        "digits-class-wise-clean-methods", "digits-class-wise-clean-cup-ws",
    ]  # fmt: skip


@pytest.mark.slow
def test_every_figure_saves_the_same_bytes_twice(found: Standings, tmp_path: Path) -> None:
    drawings, repeated = standings_figures(found), standings_figures(found)
    assert list(drawings) == list(repeated)
    for name, figure in drawings.items():
        first = save_figure(figure, tmp_path / "a.svg").read_bytes()
        assert first == save_figure(repeated[name], tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("name", ["$a$", "$", "_hidden", "a $ b $ c_1^{", r"\$x$", r"$\frac{", "x" * 200])
def test_any_name_can_be_drawn_and_stays_in_the_legend(name: str) -> None:
    figure = blank_figure(4, 3)
    ax = figure.subplots()
    ax.plot([0, 1], [0, 1], label=mpl_text(name))
    ax.set_title(mpl_text(name))
    ax.legend()
    figure.canvas.draw()
    assert ax.get_legend_handles_labels()[1] == [mpl_text(name)]
    assert len(mpl_text(name)) < 70


def test_a_dollar_sign_is_not_mathematics() -> None:
    """Two dollar signs once made matplotlib parse what stands between them."""
    from matplotlib.cbook import is_math_text

    assert not is_math_text(mpl_text("costs $5 to $6"))
    assert is_math_text("costs $5 to $6")


def test_the_dial_has_a_column_a_protocol_and_a_row_a_rate(found: Standings) -> None:
    figure = dial_figure(found.tables, "CUP")
    assert len(figure.axes) == 4
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles[:2] == ["paper protocol, λ = 0.01, 6 sets", "clean protocol, λ = 0.01, 6 sets"]
    ua = next(line for line in figure.axes[0].lines if line.get_label() == "UA")
    assert list(ua.get_ydata()) == pytest.approx([0, 20, 40, 60, 80, 100])
    lost = next(line for line in figure.axes[2].lines if line.get_label() == "some runs diverged")
    assert list(lost.get_xdata()) == [1]
    empty = dial_figure(found.tables, "WS")
    assert [t.get_text() for t in empty.texts] == ["WS does not vary γ"]


def test_two_series_in_the_plane(found: Standings) -> None:
    figure = versus_figure(found.tables[0], "CUP", "WS")
    labels = shown_texts(figure)
    assert "CUP runs (2 diverged)" in labels
    assert "WS, reached by half of the sets" in labels
    runs = next(line for line in figure.axes[0].lines if line.get_label().startswith("CUP runs"))
    assert len(runs.get_xdata()) == 2 * 3 * 12 - 2


def test_each_series_has_its_panel_and_all_share_the_front(found: Standings) -> None:
    figure = methods_figure(found.tables[0])
    titles = [ax.get_title(loc="left") for ax in figure.axes if ax.axison]
    assert [t.split("\n")[0] for t in titles] == ["WS", "CUP", mpl_text(AWKWARD, 30)]
    fronts = [
        line.get_xydata().tolist() for ax in figure.axes for line in ax.lines
        if str(line.get_label()).startswith("Pareto front")
    ]  # fmt: skip
    assert len(fronts) == 3
    assert fronts[0] == fronts[1] == fronts[2]


def test_bars_carry_their_values(found: Standings) -> None:
    figure = hypervolumes_figure(found.tables)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["paper protocol", "clean protocol"]
    h = found.tables[0].series[1].measures["hypervolume"].over_sets.mean
    assert f"{100 * h:.1f}" in [t.get_text() for t in figure.axes[0].texts]
    widths = [patch.get_width() for patch in figure.axes[0].patches]
    assert any(width == pytest.approx(100 * h) for width in widths)


@pytest.mark.slow
def test_with_twenty_series_nothing_overlaps(record: Build) -> None:
    runs = [
        record("run", (1 - 0.02 * i, 0.9, 1, 1), series=f"Method ${i}$ with quite a long name", seed=s)
        for i in range(20) for s in range(2)
    ]  # fmt: skip
    told = standings([*runs, *(record("retrained", seed=s) for s in range(2))])
    figure = hypervolumes_figure(told.tables)
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert len(boxes) == 20
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    panels = methods_figure(told.tables[0])
    panels.canvas.draw()
    titles = [ax._left_title.get_window_extent() for ax in panels.axes]
    assert not any(a.overlaps(b) for i, a in enumerate(titles) for b in titles[:i])
    for drawn in (figure, panels):
        (legend,) = drawn.legends
        inside = legend.get_window_extent()
        assert inside.x0 >= 0
        assert inside.x1 <= drawn.bbox.width
        assert not any(ax.get_tightbbox().overlaps(inside) for ax in drawn.axes if ax.axison)


def test_random_subsets_are_drawn_by_their_gap(record: Build) -> None:
    place = {"kind": "random", "forget": "10 %"}
    run, reference = record("run", (0.9, 0.3, 1, 1), **place), record("retrained", (1, 0.1, 1, 1), **place)
    (table,) = standings([run, reference]).tables
    (one,) = table_clouds(table)
    assert (one.runs[0].x, one.runs[0].y) == pytest.approx((0.9, 0.8))
    assert "gap" in methods_figure(table).axes[0].get_xlabel()
    (unjudged,) = standings([run]).tables
    assert cloud(unjudged.series[0]).runs == ()
    for draw in (methods_figure, lambda t: hypervolumes_figure([t]), lambda t: versus_figure(t, "CUP", "WS")):
        draw(unjudged).canvas.draw()


def test_all_diverged_and_nothing_else(record: Build) -> None:
    told = standings([record("run", None, knob=g, settings={"gamma": g}, label=str(g)) for g in (0, 0.5, 1.0)])
    for figure in standings_figures(told).values():
        figure.canvas.draw()


def test_the_median_of_three_sets_by_hand() -> None:
    """(0.2, 0.9), (0.5, 0.5) and (0.9, 0.2): two of the three reach (0.2, 0.5) and (0.5, 0.2)."""
    sets = [[(0.2, 0.9)], [(0.5, 0.5)], [(0.9, 0.2)]]
    assert attainment_surface(sets) == [(0.2, 0.5), (0.5, 0.2)]
    assert attainment_surface([[], [(0.9, 0.9)], []]) == [(0, 0)]  # half of the sets reach the origin only
    assert attainment_surface([]) == []


spots = st.lists(st.tuples(*[st.integers(0, 5).map(lambda i: i / 5)] * 2), max_size=4)


@settings(deadline=None)
@given(st.lists(spots, min_size=1, max_size=5))
def test_half_of_the_sets_reach_every_corner(sets: list[list[tuple[float, float]]]) -> None:
    for x, y in attainment_surface(sets):
        reached = sum((x, y) == (0, 0) or any(a >= x and b >= y for a, b in found) for found in sets)
        assert 2 * reached >= len(sets)


def test_means_count_diverged_runs_as_zeros(record: Build) -> None:
    runs = [record("run", (0.8, 0.6, 1, 1), label="x"), record("run", None, label="x", seed=1)]
    runs += [record("run", (0.3, 0.2, 1, 1), label="y", seed=s) for s in (0, 1)]
    (table,) = standings(runs).tables
    one = cloud(table.series[0])
    x, y = one.settings
    assert (x.x, x.y, x.runs, x.diverged) == (0.4, 0.3, 2, 1)
    assert [s.label for s in common_front([one])] == ["x"]
    assert view_box([]) == (-3.0, 103.0)
    assert (y.label, one.diverged) == ("y", 1)
