"""Figures of what generators draw."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gradpivot.errors import GradPivotError
from gradpivot.report.generators.figures import generator_figures
from gradpivot.results.generator_tables import compare_generators
from made_generators import cup, made_pictures, made_sweep

pytest.importorskip("matplotlib")


def titles(figure):
    return [ax.get_title() for ax in figure.axes if ax.images]


def test_one_figure_of_cup_between_the_models_and_one_of_the_others():
    figures = generator_figures(compare_generators(made_sweep(seeds=(0, 1))))
    first, others = figures.values()
    assert list(figures) == [
        "toy-ddpm-class-3-clean-protocol-samples", "toy-ddpm-class-3-clean-protocol-samples-others",
    ]  # fmt: skip
    assert titles(first) == ["Original", *(f"γ = {g:g}" for g in (0, 0.25, 0.5, 0.75, 1)), "Retrained"]
    assert titles(others) == [
        "Original", "SalUn, share = 0.1", "SalUn, share = 0.5", "SalUn, share = 0.9", "SA, penalty = 0.1",
        "SA, penalty = 1", "SA, penalty = 10", "Retrained",
    ]  # fmt: skip
    assert first.axes[3].get_xlabel() == "class 3: 48.0 % recognised\nkept classes: 96.0 %"
    assert [label.get_text() for label in first.axes[0].get_yticklabels()] == ["3", "0", "1", "2"]


def test_a_diverged_run_has_an_empty_panel_that_says_so():
    others = list(generator_figures(compare_generators(made_sweep())).values())[1]
    lost = others.axes[6]
    assert lost.get_xlabel() == "diverged"
    assert (lost.images[0].get_array() == 1).all()


def test_without_pictures_there_is_no_figure_and_without_others_only_one():
    assert generator_figures(compare_generators([cup(0.5, 0.5, drawn=False)])) == {}
    assert len(generator_figures(compare_generators([cup(0.5, 0.5)]))) == 1


def test_tables_of_one_name_do_not_take_each_others_file():
    runs = [cup(0.5, 0.5, problem=name) for name in ("a b", "a-b")]
    assert list(generator_figures(compare_generators(runs))) == [
        "a-b-class-3-clean-protocol-samples", "a-b-class-3-clean-protocol-2-samples",
    ]  # fmt: skip


def test_sheets_of_another_shape_are_refused():
    odd = replace(cup(1.0, 0.1), pictures=made_pictures(0.1, columns=2))
    with pytest.raises(GradPivotError, match="all must have the same shape"):
        generator_figures(compare_generators([cup(0.0, 0.9), odd]))
