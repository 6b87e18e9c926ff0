"""A method as far as answers alone can teach it: what is left where the teacher shows no inner states."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from potstill.errors import SettingsError
from potstill.recipes.recipe import Recipe
from potstill.recipes.terms import Reads

__all__ = ["Restricted", "restricted", "weight_text"]


@dataclass(frozen=True)
class Restricted:
    """A recipe without some of its terms.

    Attributes:
        recipe: What is left; phases without a term are gone.
        left_out: Names of the terms that were left out.
        phases: Names of the phases that were left out with them.
    """

    recipe: Recipe
    left_out: tuple[str, ...]
    phases: tuple[str, ...]


def weight_text(value: float | tuple[float, float]) -> str:
    """A weight as settings write it: one number, or two in brackets."""
    return f"[{value[0]:g}, {value[1]:g}]" if isinstance(value, tuple) else f"{value:g}"


def restricted(
    recipe: Recipe, reads: Collection[Reads], *, wanted: Mapping[str, Any], why: str, fix: str
) -> Restricted:
    """The recipe with only those of its terms that read what there is; general distillation goes.

    Args:
        recipe: Any, with the settings' overrides.
        reads: What there is to read.
        wanted: Weights that the user has set, by name; None where they are the recipe's own.
        why: Why the others cannot be: stands in the error.
        fix: What to do about it.

    Raises:
        SettingsError: The user has set the weight of a term that cannot be, or nothing is left that reads a teacher.
    """
    left_out: dict[str, None] = {}
    phases, gone = [], []
    for phase in recipe.phases:
        kept = tuple(term for term in phase.terms if term.reads in reads)
        left_out.update({term.name: None for term in phase.terms if term.weight and term.reads not in reads})
        if any(term.weight for term in kept):
            phases.append(replace(phase, terms=kept, augmented=True))
        else:
            gone.append(phase.name)
    if chosen := [name for name in left_out if wanted.get(name)]:
        raise SettingsError(f"distill.weights.{chosen[0]} = {weight_text(wanted[chosen[0]])} {why}", fix=fix)
    made = replace(recipe, phases=tuple(phases), general=None, copies=0, projection="none")
    if not made.teaches_the_task:
        raise SettingsError(
            f"distill.mode = {recipe.name} {why}: nothing of it learns from a teacher's answers",
            expected="a mode with a term on answers, such as potstill, logits or paper",
            fix="choose another distill.mode",
        )
    return Restricted(made, tuple(left_out), tuple(gone))
