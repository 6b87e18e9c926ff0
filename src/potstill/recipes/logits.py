"""Methods on answers alone: Hinton's, FitNets' hints before it, and a student fine-tuned from some of the layers.

Hinton et al. 2015, arXiv 1503.02531: soft targets at a temperature, and the labels at a lower weight. FitNets (Romero
et al. 2015, arXiv 1412.6550): first the student's middle layer learns the teacher's through a regressor. Poor Man's
BERT (Sajjad et al. 2020, arXiv 2004.03844): layers are dropped, and what is left is fine-tuned on the labels.
"""

from dataclasses import replace

from potstill.recipes.recipe import Phase, Recipe
from potstill.recipes.terms import HARD, HINT, LOGITS

__all__ = ["FITNETS", "LOGITS_ONLY", "POOR_MANS"]

_ANSWERS = Phase(
    "prediction",
    (replace(LOGITS, temperature=2.0), replace(HARD, weight=0.1)),
    epochs=10,
    batch_size=32,
    learning_rate=5e-5,
)

LOGITS_ONLY = Recipe(name="logits", general=None, phases=(_ANSWERS,), copies=10, start="random", projection="none")

FITNETS = Recipe(
    name="fitnets",
    general=None,
    phases=(
        Phase("intermediate", (HINT,), epochs=10, batch_size=32, learning_rate=5e-5),
        _ANSWERS,
    ),
    copies=10,
    start="random",
    projection="each",
)

POOR_MANS = Recipe(
    name="poor-mans",
    general=None,
    phases=(Phase("prediction", (HARD,), epochs=3, batch_size=32, learning_rate=2e-5, augmented=False),),
    copies=0,
    start="layers",
    layers="bottom",
    projection="none",
)
