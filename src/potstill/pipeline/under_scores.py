"""What a file of scores cannot do that a model can: settings refused before work, and a method cut to its answers."""

from dataclasses import replace
from pathlib import Path

from potstill.config import Settings
from potstill.errors import SettingsError
from potstill.pipeline.findings import Findings
from potstill.recipes import Recipe
from potstill.recipes.answers import restricted
from potstill.recipes.terms import Reads

__all__ = ["BASE", "adapted", "base_of", "method_under_scores"]

BASE = "pypi:minilm"
"""The model that a student is made from where neither a teacher nor student.start says which."""

_NO_MODEL = "under teacher.scores, which are answers and no model"


def base_of(settings: Settings, starts: tuple[str, ...]) -> str:
    """Source of the model that gives the student its tokenizer, architecture and weights."""
    named = settings.student.start
    return BASE if named is None or named in starts else named


def adapted(settings: Settings) -> Settings:
    """The settings as they are meant under scores: no augmentation.

    Raises:
        SettingsError: Something is set that takes a model to teach.
    """
    augment, named = settings.augment, Path(str(settings.teacher.scores))
    if (named / "config.json").is_file():
        raise SettingsError(
            f"teacher.scores = {named} is the folder of a model", expected="a file", fix="give it as --teacher"
        )
    refused = [
        ("general.texts", settings.general.texts, "there is nobody to read plain text with"),
        ("student.assistants", not isinstance(settings.student.assistants, str), "they are shrunk from a teacher"),
        ("augment.method", augment.method not in ("auto", "none"), "new texts would have no scores"),
        ("augment.copies", augment.copies, "new texts would have no scores"),
        ("augment.model", augment.model, "new texts would have no scores"),
        ("augment.vectors", augment.vectors, "new texts would have no scores"),
        ("teacher.cache", settings.teacher.cache not in ("auto", "none"), "there is nobody whose words could be kept"),
        ("teacher.grid", settings.teacher.grid, "there is no teacher to fine-tune"),
    ]
    for key, is_set, why in refused:
        if is_set:
            raise SettingsError(f"{key} {_NO_MODEL}: {why}", fix=f"leave {key} out, or give a model as teacher.source")
    quiet = augment.model_copy(update={"method": "none"})
    return settings.model_copy(update={"augment": quiet})


def method_under_scores(recipe: Recipe, settings: Settings, found: Findings) -> tuple[Recipe, tuple[str, ...]]:
    """The method with the terms that scores can teach, starting from what there is; and what was left out, in lines.

    Raises:
        SettingsError: A weight is set for a term that cannot be, or the method has no term on answers.
    """
    reads: tuple[Reads, ...] = ("logits", "labels")
    wanted = settings.distill.weights.model_dump()
    made = restricted(
        recipe,
        reads,
        wanted=wanted,
        why=f"reads a teacher's inner states, and {settings.teacher.scores} holds answers alone",
        fix="leave it out, or give a model as teacher.source",
    )
    lines = []
    if made.left_out:
        lines.append(f"left out of {recipe.name}: {', '.join(made.left_out)} (answers show no inner states)")
    if made.phases:
        lines.append(f"left out of {recipe.name}: the phase {', '.join(made.phases)}, of which nothing is left")
    kept = made.recipe
    if not found.gold["train"]:
        answers: tuple[Reads, ...] = ("logits",)
        bare = restricted(
            kept,
            answers,
            wanted=wanted,
            why="reads gold labels, and train has none",
            fix="leave it out, or give train a column of labels",
        )
        kept = bare.recipe
        lines += [f"left out of {recipe.name}: {name} (train has no gold labels)" for name in bare.left_out]
        if settings.evaluate.hard_labels:
            lines.append("no baseline on labels alone: train has no gold labels")
    lines.append("no augmentation: there is no teacher to label new texts")
    return replace(kept, start="shrunk", layers=None), tuple(lines)
