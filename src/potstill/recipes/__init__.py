"""Published methods, each declared as phases and loss terms; and the programs that run them."""

from potstill.recipes.distilbert import DISTILBERT, WELL_READ
from potstill.recipes.logits import FITNETS, LOGITS_ONLY, POOR_MANS
from potstill.recipes.minilm import MINILM, MINILM2
from potstill.recipes.pkd import PKD
from potstill.recipes.potstill import POTSTILL
from potstill.recipes.recipe import (
    Phase,
    Recipe,
    Term,
    build_terms,
    by_heads,
    chosen_layers,
    for_task,
    in_units,
    layer_pairs,
    of_several_teachers,
    with_loss,
    with_overrides,
)
from potstill.recipes.tinybert import PAPER, REFERENCE
from potstill.recipes.vectors import VECTORS

__all__ = [
    "RECIPES",
    "Phase",
    "Recipe",
    "Term",
    "build_terms",
    "by_heads",
    "chosen_layers",
    "for_task",
    "in_units",
    "layer_pairs",
    "of_several_teachers",
    "with_loss",
    "with_overrides",
]

_ALL = (
    POTSTILL,
    PAPER,
    REFERENCE,
    MINILM,
    MINILM2,
    PKD,
    DISTILBERT,
    WELL_READ,
    LOGITS_ONLY,
    FITNETS,
    POOR_MANS,
    VECTORS,
)
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _ALL}
"""By the name of `distill.mode`."""
