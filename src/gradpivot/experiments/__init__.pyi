from .problem import Problem as Problem, find_problem as find_problem, with_model as with_model
from .problems import list_problems as list_problems
from .problems.digits import (
    GAMMAS as GAMMAS,
    demo_series as demo_series,
    digits as digits,
    study_series as study_series,
)
from .recipes.finding import list_recipes as list_recipes, read_recipe_text as read_recipe_text
from .recipes.reading import OwnCodeError as OwnCodeError, load_recipe as load_recipe
from .recipes.recipe import ForgetSpec as ForgetSpec, Recipe as Recipe, filled as filled, numbers_in as numbers_in
from .toy.figure import run_toy as run_toy
from .vae.figure import run_vae as run_vae
from .vae.recipe import vae_recipe as vae_recipe
