"""Published methods, each declared as phases and loss terms; and the programs that run them."""

from potstill.recipes.potstill import POTSTILL
from potstill.recipes.recipe import Phase, Recipe, Term, build_terms, chosen_layers, layer_pairs, with_overrides
from potstill.recipes.tinybert import PAPER, REFERENCE

__all__ = ["RECIPES", "Phase", "Recipe", "Term", "build_terms", "chosen_layers", "layer_pairs", "with_overrides"]

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (POTSTILL, PAPER, REFERENCE)}
"""By the name of `distill.mode`."""
