"""Models between teacher and student: which there are, which layers they keep, and what they learn."""

from collections.abc import Sequence

from transformers import PretrainedConfig

from potstill.config import Settings
from potstill.models.student import Shape
from potstill.recipes import Phase, Recipe

__all__ = ["FEWEST_LAYERS", "TEACHER_LOGITS", "assistant_phases", "choose_assistants", "halves", "kept_layers"]

FEWEST_LAYERS = 6
"""Of an assistant that nobody named."""

TEACHER_LOGITS = "teacher-logits"
"""The stage with the teacher's answers to the texts that were given, for a chain of models."""


def choose_assistants(
    settings: Settings, teacher: PretrainedConfig, student: Shape, way: str, recipe: Recipe
) -> tuple[Shape, ...]:
    """The shapes that `student.assistants` names, or those of `halves` where it is left to the method.

    The method decides for a student that is shrunk from a teacher on the task itself: not for one from another model,
    under scores, after general distillation, of layers that the settings name, or of another vocabulary in windows.
    """
    chosen = settings.student.assistants
    if chosen == "none":
        return ()
    if chosen != "auto":
        return tuple(Shape.under(text, teacher) for text in chosen)
    apart = (
        settings.teacher.scores is not None
        or settings.student.layers is not None
        or bool(settings.general.texts)
        or (settings.student.vocabulary != "full" and settings.data.long_text == "window")
    )
    if way != "shrunk" or apart or not recipe.assistant or not recipe.teaches_the_task:
        return ()
    return halves(Shape.of(teacher), student)


def halves(teacher: Shape, student: Shape) -> tuple[Shape, ...]:
    """Half the layers at the same width, and half of these, as long as there are more than the student has.

    None for a student as wide as its teacher, and none of fewer than `FEWEST_LAYERS`.
    """
    made, layers = list[Shape](), teacher.layers // 2
    while layers > student.layers and layers >= FEWEST_LAYERS and student.hidden < teacher.hidden:
        made.append(Shape(layers, teacher.hidden, teacher.ffn, teacher.heads))
        layers //= 2
    return tuple(made)


def kept_layers(shape: Shape, above: Shape) -> tuple[int, ...]:
    """The layers (1-based) that an assistant is cut from: spread evenly from the first on, and the last.

    Of 12 for 6: 1, 3, 5, 7, 9, 12.
    """
    return (*(1 + layer * above.layers // shape.layers for layer in range(shape.layers - 1)), above.layers)


def assistant_phases(recipe: Recipe) -> Sequence[Phase]:
    """What an assistant learns: what the method says of assistants, else what it says of students."""
    return recipe.assistant or recipe.phases
