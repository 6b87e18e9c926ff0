"""Methods whose first half is a masked LM on plain text: DistilBERT, and well-read students.

DistilBERT (Sanh et al. 2019, arXiv 1910.01108): every other layer of the teacher, then the teacher's words at
temperature 2, the right words, and the direction of the last hidden states, weighted 5, 2 and 1; the task is plain
fine-tuning. Both losses on words are taken at the masked places. Well-read students (Turc et al. 2019, arXiv
1908.08962): the small model is pre-trained by itself, then learns the teacher's answers.
"""

from dataclasses import replace

from potstill.losses import soft_cross_entropy
from potstill.recipes.recipe import Phase, Recipe
from potstill.recipes.terms import COSINE, HARD, LOGITS, MASKED, WORDS

__all__ = ["DISTILBERT", "WELL_READ"]

DISTILBERT = Recipe(
    name="distilbert",
    general=Phase(
        "general",
        (replace(WORDS, weight=5.0), replace(MASKED, weight=2.0), COSINE),
        epochs=3,
        batch_size=256,
        learning_rate=5e-4,
        objective="masked",
    ),
    phases=(Phase("prediction", (HARD,), epochs=3, batch_size=32, learning_rate=5e-5, augmented=False),),
    copies=0,
    start="layers",
    layers="every-other",
    projection="none",
)

WELL_READ = Recipe(
    name="well-read",
    general=Phase("general", (MASKED,), epochs=3, batch_size=256, learning_rate=1e-4, objective="masked"),
    phases=(
        Phase(
            "prediction",
            (replace(LOGITS, fn=soft_cross_entropy),),
            epochs=10,
            batch_size=32,
            learning_rate=5e-5,
        ),
    ),
    copies=10,
    start="random",
    projection="none",
)
