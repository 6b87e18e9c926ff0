"""Our own recipe: a student shrunk from the teacher, then all losses together.

A student that starts near its teacher can learn states and answers at once: the two passes of TinyBERT become one. The
states weigh so much that they come first: they say hundreds of times more of a text than its answer does, and a student
that fits the answers before them fits the training texts alone.
Where the two have different numbers of heads, whose scores cannot be compared head with head, MiniLMv2's relations of
the last layers (arXiv 2012.15828) take the place of the attention loss.
"""

from dataclasses import replace

from potstill.recipes.recipe import Phase, Recipe
from potstill.recipes.terms import ATTENTION, EMBEDDING, HARD, HIDDEN, KEYS, LOGITS, QUERIES, VALUES

__all__ = ["POTSTILL"]

_ATTENTION = replace(ATTENTION, otherwise=(QUERIES, KEYS, VALUES))
_STATES = (EMBEDDING, HIDDEN, _ATTENTION)

_TASK = Phase(
    "distil",
    (
        replace(EMBEDDING, weight=0.0),
        replace(HIDDEN, weight=100.0),
        replace(_ATTENTION, weight=10.0),
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
)

POTSTILL = Recipe(
    name="potstill",
    general=Phase("general", _STATES, epochs=3, batch_size=64, learning_rate=2e-4, dropout=False),
    phases=(_TASK,),
    assistant=(replace(_TASK, examples=100_000),),
    copies=10,
    start="shrunk",
    projection="each",
)
