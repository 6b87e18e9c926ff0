"""Patient knowledge distillation (Sun et al. 2019, arXiv 1908.09355): [CLS] of inner layers, soft and hard labels.

The student starts from the teacher's first layers. With `distill.mapping` uniform it is PKD-skip, with top PKD-last.
The paper searches α in {0.2, 0.5, 0.7}, the temperature in {5, 10, 20} and β in {10, 100, 500, 1000}; here they are
0.5, 10 and 10.
"""

from dataclasses import replace

from potstill.losses import soft_cross_entropy
from potstill.recipes.recipe import Phase, Recipe
from potstill.recipes.terms import CLS, HARD, LOGITS

__all__ = ["PKD"]

PKD = Recipe(
    name="pkd",
    general=None,
    phases=(
        Phase(
            "distil",
            (
                replace(CLS, weight=10.0),
                replace(LOGITS, fn=soft_cross_entropy, weight=0.5, temperature=10.0),
                replace(HARD, weight=0.5),
            ),
            epochs=4,
            batch_size=32,
            learning_rate=5e-5,
            augmented=False,
        ),
    ),
    copies=0,
    start="layers",
    layers="bottom",
    projection="none",
)
