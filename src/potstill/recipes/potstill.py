"""Our own recipe: a student shrunk from the teacher, then all losses together.

A student that starts near its teacher can learn states and answers at once: the two passes of TinyBERT become one.
"""

from potstill.losses import attention_mse, hard_cross_entropy, hidden_mse, logits_kl
from potstill.recipes.recipe import Phase, Recipe, Term

__all__ = ["POTSTILL"]

_STATES = (Term("embedding", hidden_mse), Term("hidden", hidden_mse), Term("attention", attention_mse))

POTSTILL = Recipe(
    name="potstill",
    general=Phase("general", _STATES, epochs=3, batch_size=64, learning_rate=2e-4, dropout=False),
    phases=(
        Phase(
            "distil",
            (
                Term("embedding", hidden_mse, 0.0),
                Term("hidden", hidden_mse),
                Term("attention", attention_mse, 0.1),
                Term("logits", logits_kl),
                Term("hard", hard_cross_entropy, 0.3),
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
    shared_projection=False,
)
