"""The reproduce command: toy, digits, cifar10-class, ddpm and vae."""

from __future__ import annotations

import dataclasses
import json

from gradpivot.cli import options
from gradpivot.cli.console import bar, counted, say_one, say_sweep, wants_progress
from gradpivot.cli.dispatch import run
from gradpivot.cli.inputs import output_folder, refuse_file, set_threads, split_of
from gradpivot.cli.interrupt import terminating
from gradpivot.cli.tracing import save_drawn, study

__all__: list[str] = []


@run.register
def _(chosen: options.ReproduceToyOptions) -> int:
    with output_folder(chosen.out):
        return _toy(chosen)


def _toy(chosen: options.ReproduceToyOptions) -> int:
    from gradpivot.experiments import run_toy

    set_threads(chosen.threads)
    with bar("Toy, over seeds", wants_progress(chosen.json)) as report:
        outcome = run_toy(chosen.seed, chosen.seeds, report)
    from gradpivot.report import toy_figure
    from gradpivot.runtime import write_text

    save_drawn(chosen.out, "toy", toy_figure(outcome.panels))
    text = json.dumps(outcome.summary, indent=2) + "\n"
    write_text(chosen.out / "results.json", text)
    say_one(chosen.json, text, outcome.table(), f"Figure and accuracies are in {chosen.out}")
    return 0


@run.register
def _(chosen: options.ReproduceDigitsOptions) -> int:
    with output_folder(chosen.out):
        return _digits(chosen)


def _digits(chosen: options.ReproduceDigitsOptions) -> int:
    from gradpivot.experiments import digits, study_series
    from gradpivot.report import summary, summary_markdown
    from gradpivot.runtime import write_text

    problem = digits()
    split = split_of(problem, classes=str(chosen.forget))
    title = f"Forgetting the digit {chosen.forget}: CUP, WS and GA over equal-size spaces"
    command = (
        f"gradpivot reproduce digits --class {chosen.forget} --seed {chosen.seed} --seeds {chosen.seeds} "
        f"--threads {chosen.threads}"
    )
    comparisons = [
        study(problem, split, study_series(), chosen, title, seed, command)
        for seed in range(chosen.seed, chosen.seed + chosen.seeds)
    ]
    totals = summary(comparisons)
    write_text(chosen.out / "summary.json", json.dumps(totals, indent=2, ensure_ascii=False) + "\n")
    write_text(chosen.out / "summary.md", summary_markdown(totals))
    text = json.dumps(totals, ensure_ascii=False)
    say_one(chosen.json, text, summary_markdown(totals), f"Summary is in {chosen.out}")
    return 0


@run.register
def _(chosen: options.ReproduceCifar10ClassOptions) -> int:
    return _sweep_and_compare(chosen, {"short": "cifar10-pretrained", "full": "cifar10-class"}[chosen.preset])


@run.register
def _(chosen: options.ReproduceDdpmOptions) -> int:
    return _sweep_and_compare(chosen, {"small": "mnist-ddpm", "full": "cifar10-ddpm"}[chosen.preset])


@run.register
def _(chosen: options.ReproduceVaeOptions) -> int:
    with output_folder(chosen.out):
        return _vae(chosen)


def _vae(chosen: options.ReproduceVaeOptions) -> int:
    from gradpivot.experiments import run_vae, vae_recipe
    from gradpivot.report import latent_figure, latent_markdown, save_latent_animation
    from gradpivot.runtime import write_text

    set_threads(chosen.threads)
    recipe = vae_recipe(chosen.preset, chosen.protocol)
    if chosen.values:
        # Validate every γ before training starts.
        [dataclasses.replace(recipe.method, gamma=gamma) for gamma in chosen.values]
        recipe = dataclasses.replace(recipe, gammas=chosen.values)
    with terminating(), bar("VAE over γ", wants_progress(chosen.json)) as report:
        outcome = run_vae(recipe, chosen.out, forgotten=chosen.forget, seed=chosen.seed, report=counted(report))
    save_drawn(chosen.out, "latent-map", latent_figure(outcome.panels, chosen.forget))
    # The first panel is the original, the last the retrained model.
    save_latent_animation(outcome.panels[1:-1], chosen.out / "latent-map.gif")
    text = json.dumps(outcome.summary, indent=2, ensure_ascii=False) + "\n"
    table = latent_markdown(outcome.summary)
    write_text(chosen.out / "table.md", table)
    write_text(chosen.out / "results.json", text)
    say_one(chosen.json, text, table, f"Figure, table and numbers are in {chosen.out}")
    return 0


def _sweep_and_compare(chosen: options.ReproduceCifar10ClassOptions | options.ReproduceDdpmOptions, recipe: str) -> int:
    """Sweep into ``out/store``, then compare into ``out``."""
    from gradpivot.cli.sweeping import sweep

    refuse_file(chosen.out)
    store = chosen.out / "store"
    named = {field.name for field in dataclasses.fields(options.SweepOptions)} - {"json"}
    shared = {name: value for name, value in vars(chosen).items() if name in named}
    state, failures = sweep(options.SweepOptions(recipe=recipe, store=store, **shared))
    if not chosen.json:
        say_sweep(state, failures, store)
    run(options.CompareOptions(store=store, out=chosen.out, json=chosen.json))
    return 0 if state.is_whole else 1
