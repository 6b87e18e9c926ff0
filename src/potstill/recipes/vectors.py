"""Vectors of whole texts: the mean of the last hidden states, and how near texts are to one another.

Reimers & Gurevych 2020, arXiv 2004.09813 (squared distance); Tung & Mori 2019, arXiv 1907.09682 (similarities). The
answers are learned beside them.
"""

from dataclasses import replace

from potstill.recipes.recipe import Phase, Recipe
from potstill.recipes.terms import DIRECTION, LOGITS, SIMILARITY, VECTOR

__all__ = ["VECTORS"]

VECTORS = Recipe(
    name="vectors",
    general=Phase("general", (VECTOR, SIMILARITY), epochs=3, batch_size=64, learning_rate=2e-4, dropout=False),
    phases=(
        Phase(
            "distil",
            (VECTOR, replace(DIRECTION, weight=0.0), SIMILARITY, LOGITS),
            epochs=None,
            examples=300_000,
            batch_size=64,
            learning_rate=3e-4,
            average=0.2,
            reference_width=312,
            dropout=False,
        ),
    ),
    copies=10,
    start="shrunk",
    projection="each",
)
