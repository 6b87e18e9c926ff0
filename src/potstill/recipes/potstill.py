"""Our own recipe: a student shrunk from the teacher, then all losses together.

A student that starts near its teacher can learn states and answers at once: the two passes of TinyBERT become one.
"""

from dataclasses import replace

from potstill.recipes.recipe import Phase, Recipe
from potstill.recipes.terms import ATTENTION, EMBEDDING, HARD, HIDDEN, LOGITS

__all__ = ["POTSTILL"]

_STATES = (EMBEDDING, HIDDEN, ATTENTION)

POTSTILL = Recipe(
    name="potstill",
    general=Phase("general", _STATES, epochs=3, batch_size=64, learning_rate=2e-4, dropout=False),
    phases=(
        Phase(
            "distil",
            (
                replace(EMBEDDING, weight=0.0),
                HIDDEN,
                replace(ATTENTION, weight=0.1),
                LOGITS,
                replace(HARD, weight=0.3),
            ),
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
