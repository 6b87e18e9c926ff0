"""TinyBERT (Jiao et al. 2020, arXiv 1909.10351): by the paper's equations, and as its released code computes.

Two passes over augmented data: embedding, hidden and attention losses first, then the prediction loss alone; all
weights are 1. The two modes differ in what an average is taken over and in the projection; docs/methods/tinybert.md
lists it. On STS-B, a regression, both read the original texts, and the released code learns the gold scores last.
"""

from dataclasses import replace

from potstill.losses import (
    attention_mse_reference,
    hidden_mse_reference,
    soft_cross_entropy,
    soft_cross_entropy_reference,
)
from potstill.recipes.recipe import Phase, Recipe
from potstill.recipes.terms import ATTENTION, EMBEDDING, HARD, HIDDEN, LOGITS

__all__ = ["PAPER", "REFERENCE"]

_PAPER_STATES = (EMBEDDING, HIDDEN, ATTENTION)
_CODE_STATES = (
    replace(EMBEDDING, fn=hidden_mse_reference),
    replace(HIDDEN, fn=hidden_mse_reference),
    replace(ATTENTION, fn=attention_mse_reference),
)
_LABELS = replace(HARD, weight=0.0)  # not in the paper; distill.weights.hard adds it
_PAPER_LOGITS = (replace(LOGITS, fn=soft_cross_entropy), _LABELS)
_CODE_LOGITS = (replace(LOGITS, fn=soft_cross_entropy_reference), _LABELS)

PAPER = Recipe(
    name="paper",
    general=Phase("general", _PAPER_STATES, epochs=3, batch_size=256, learning_rate=5e-5),
    phases=(
        Phase(
            "intermediate", _PAPER_STATES, epochs=20, batch_size=32, learning_rate=5e-5, warmup=0.0, decay="constant"
        ),
        Phase("prediction", _PAPER_LOGITS, epochs=3, batch_size=32, learning_rate=3e-5),
    ),
    copies=20,
    start="random",
    projection="each",
)

REFERENCE = Recipe(
    name="reference",
    general=Phase("general", _CODE_STATES, epochs=3, batch_size=256, learning_rate=5e-5),
    phases=(
        Phase("intermediate", _CODE_STATES, epochs=20, batch_size=32, learning_rate=5e-5, warmup=0.0, decay="constant"),
        Phase("prediction", _CODE_LOGITS, epochs=3, batch_size=32, learning_rate=3e-5),
    ),
    copies=20,
    start="random",
    projection="shared",
    gold_on=("regression",),
)
