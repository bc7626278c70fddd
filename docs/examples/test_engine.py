from gradpivot.cli import main

RECIPE = """
schema: gradpivot.recipe/1
problem: my_problem:clusters
forget: {classes: 0}
protocols:
  clean:
    settings: {epochs: 1}
    series:
      GA: {method: ga}
"""


def test_a_sweep_runs_on_it(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE)
    assert main(["sweep", str(recipe), "--store", str(tmp_path / "store"), "--engine", "my_engine:start"]) == 0
