"""A student that does not read as its teacher does: by another tokenizer, or up to another length.

What it starts from, what of a method can still be learned, and which checks that needs before any work. Tokens are
then joined by their characters (`potstill.data.alignment`): ids of one model never reach the other.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from tokenizers import Tokenizer
from transformers import PretrainedConfig

from potstill.config import Settings
from potstill.config.kinds import DEFAULT_SHAPE
from potstill.data.alignment import same_reading
from potstill.data.sources import Source
from potstill.errors import ModelError, SettingsError
from potstill.losses import hidden_mse_reference
from potstill.models.loading import longest_input
from potstill.models.student import Shape
from potstill.recipes import Phase, Recipe
from potstill.recipes.answers import weight_text
from potstill.recipes.terms import Term

__all__ = ["StudentSide", "learnable", "same_tokenizer", "student_side"]

_OF_TOKEN_PAIRS = ("scores", "queries", "keys", "values")


@dataclass(frozen=True)
class StudentSide:
    """What the student is made of and how it reads.

    Attributes:
        source: The model that it starts from, where that is not the teacher; None where it is.
        config: Of the model whose architecture, positions and tokenizer it has.
        folder: That model's.
        shape: The student's.
        own_tokenizer: Whether it reads by another tokenizer than the teacher's.
        max_length: As the settings name it.
    """

    source: Source | None
    config: PretrainedConfig
    folder: Path
    shape: Shape
    own_tokenizer: bool
    max_length: int | None

    @property
    def joined(self) -> bool:
        """Whether its tokens have to be joined to the teacher's by their characters."""
        return self.own_tokenizer or self.max_length is not None

    @property
    def cut(self) -> bool:
        """Whether it is shrunk from the model that it starts from."""
        return self.source is not None and self.shape != Shape.of(self.config)


def same_tokenizer(one: Path, other: Path) -> bool:
    """Whether the tokenizers of two models' folders give every text the same ids."""
    return same_reading(*(Tokenizer.from_file(str(folder / "tokenizer.json")) for folder in (one, other)))


def student_side(
    settings: Settings, teacher: Source, config: PretrainedConfig, start: tuple[Source, PretrainedConfig] | None
) -> StudentSide:
    """The student's side.

    Args:
        settings: Of the run.
        teacher: The teacher.
        config: Its config.
        start: The model that the student starts from, and its config; None where that is the teacher.

    Raises:
        ModelError: A shape that the model it starts from cannot be shrunk to.
        SettingsError: A maximum length that the student has no positions for.
    """
    wanted, length = settings.student.shape, settings.student.max_length
    source, own = (None, config) if start is None else start
    folder = (source or teacher).paths[0]
    if source is None:
        shape = Shape.under(wanted or DEFAULT_SHAPE, own)
    else:
        full = Shape.of(own)
        shape = full if wanted is None else Shape.under(wanted, own)
        if any(getattr(shape, name) > getattr(full, name) for name in ("layers", "hidden", "ffn", "heads")):
            raise ModelError(
                f"student.shape = {wanted} with a student that starts from {source.name}, {full}",
                expected=f"{full}, or no dimension larger: it is then shrunk",
                fix="choose a smaller shape, leave student.shape out, or start from a larger model",
            )
    if length is not None and length > longest_input(own):
        raise SettingsError(
            f"student.max_length = {length} with {longest_input(own)} positions",
            expected=f"at most {longest_input(own)}",
            fix="start the student from a model that reads more",
        )
    own_tokenizer = source is not None and not same_tokenizer(folder, teacher.paths[0])
    return StudentSide(source, own, folder, shape, own_tokenizer, length)


def learnable(recipe: Recipe, settings: Settings, side: StudentSide) -> tuple[Recipe, tuple[str, ...]]:
    """What of a method can be learned where tokens are joined by their characters, and a note on what is left out.

    Left out are losses on pairs of tokens (attention, relations): two tokenizations have not the same pairs.

    Raises:
        SettingsError: A weight that the user has set for such a loss, a method that is nothing without them or that
            counts padding, or plain text to learn from.
    """
    if not side.joined:
        return recipe, ()
    between = _between(side)
    if side.own_tokenizer and (settings.general.texts or (recipe.general and not recipe.teaches_the_task)):
        raise SettingsError(
            f"distillation on plain text {between}",
            expected="one tokenizer: the texts are packed, and both models read the same windows",
            fix="leave general.texts out, with a distill.mode that learns from the teacher on the task; or distil on "
            "plain text in a run of its own, and start from its student",
        )
    weights = settings.distill.weights.model_dump()
    terms = [term for phase in recipe.phases for term in phase.terms if term.weight]
    if any(term.fn is hidden_mse_reference for term in terms):
        raise SettingsError(
            f"distill.mode = {recipe.name} {between}",
            expected="losses on real tokens: its authors' code compares padding too, which joins to nothing",
            fix="choose distill.mode = paper",
        )
    lost = [term.name for term in terms if term.reads in _OF_TOKEN_PAIRS]
    if chosen := [name for name in lost if weights.get(name)]:
        raise SettingsError(
            f"distill.weights.{chosen[0]} = {weight_text(weights[chosen[0]])} {between}",
            expected="losses on tokens, vectors or answers: texts cut in two ways have not the same pairs of tokens",
            fix=f"leave distill.weights.{chosen[0]} out, or start the student from the teacher",
        )
    if not lost:
        return recipe, ()
    phases = tuple(phase for phase in map(_without_pairs, recipe.phases) if any(t.weight for t in phase.terms))
    left = replace(recipe, phases=phases)
    if recipe.teaches_the_task and not left.teaches_the_task:
        raise SettingsError(
            f"distill.mode = {recipe.name} {between}: all that it learns are pairs of tokens",
            fix="choose distill.mode = potstill or logits",
        )
    named = ", ".join(dict.fromkeys(lost))
    return left, (f"the {named} loss of {recipe.name} is left out: it compares pairs of tokens, {between}",)


def _without_pairs(phase: Phase) -> Phase:
    def kept(term: Term) -> Term:
        return replace(term, weight=0.0) if term.reads in _OF_TOKEN_PAIRS else term

    return replace(phase, terms=tuple(map(kept, phase.terms)))


def _between(side: StudentSide) -> str:
    if side.own_tokenizer:
        assert side.source is not None
        return f"between a teacher and a student ({side.source.name}) of different tokenizers"
    return f"between a teacher and a student that reads another length (student.max_length = {side.max_length})"
