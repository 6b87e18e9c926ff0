"""MiniLM (Wang et al. 2020, arXiv 2002.10957) and MiniLMv2 (Wang et al. 2020, arXiv 2012.15828).

Task-free: on plain text, the last layer's self-attention alone is imitated. The first asks for as many heads as the
teacher has; the second, whose relations are cut anew, for nothing. The task then is plain fine-tuning.
"""

from potstill.recipes.recipe import Phase, Recipe
from potstill.recipes.terms import DISTRIBUTION, HARD, KEYS, QUERIES, VALUE_HEADS, VALUES, Term

__all__ = ["MINILM", "MINILM2"]


def _recipe(name: str, terms: tuple[Term, ...], rate: float) -> Recipe:
    return Recipe(
        name=name,
        general=Phase("general", terms, epochs=3, batch_size=256, learning_rate=rate),
        phases=(Phase("prediction", (HARD,), epochs=3, batch_size=32, learning_rate=5e-5, augmented=False),),
        copies=0,
        start="random",
        projection="none",
    )


MINILM = _recipe("minilm", (DISTRIBUTION, VALUE_HEADS), 5e-4)
MINILM2 = _recipe("minilm2", (QUERIES, KEYS, VALUES), 6e-4)
