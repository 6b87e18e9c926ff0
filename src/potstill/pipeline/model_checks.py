"""Whether the models of a run fit one another, and the method: checked before any work, from configurations alone."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from transformers import PretrainedConfig

from potstill.config import Settings
from potstill.data.masking import MaskVocabulary
from potstill.data.pruning import kept_pieces
from potstill.data.sources import Source
from potstill.errors import ModelError, SettingsError
from potstill.losses import hidden_mse_reference, value_kl
from potstill.models.anatomy import ANATOMIES
from potstill.models.masked_lm import has_masked_lm_head
from potstill.models.student import Shape, check_start, student_config
from potstill.pipeline.assistants import kept_layers
from potstill.pipeline.sides import StudentSide
from potstill.recipes import RECIPES, Recipe, by_heads, chosen_layers, layer_pairs
from potstill.recipes.cached import padding_read
from potstill.recipes.reading import needs_projection

__all__ = ["check_further", "check_masked", "check_readable", "check_shapes", "check_starts", "check_vocabulary"]


def check_shapes(settings: Settings, shapes: Sequence[Shape], way: str, recipe: Recipe) -> None:
    """Teacher, assistants, student: each under the one before it."""
    for above, assistant in pairwise(shapes[:-1]):
        _check_shape(assistant, above, "shrunk", recipe, what="student.assistants: an assistant")
    _check_shape(shapes[-1], shapes[-2], way, recipe)
    published = RECIPES[recipe.name]  # whoever sets the weights of all else to 0 wants labels alone
    if recipe.general is not None and not published.teaches_the_task and not settings.general.texts:
        raise SettingsError(
            f"distill.mode = {recipe.name} without general.texts: it learns from the teacher on plain text alone",
            expected="plain text",
            fix="set general.texts, or choose another distill.mode",
        )
    if settings.general.texts:  # there the teacher itself teaches the student
        if recipe.general is None:
            raise SettingsError(
                f"general.texts with distill.mode = {recipe.name}",
                expected="a mode that distils on plain text: " + ", ".join(n for n, r in RECIPES.items() if r.general),
                fix="leave general.texts out",
            )
        _check_shape(shapes[-1], shapes[0], "model", replace(recipe, phases=(recipe.general,)))
    _check_layers(settings, way, shapes[-2])


def check_further(settings: Settings, configs: Sequence[PretrainedConfig], student: Shape, recipe: Recipe) -> None:
    """That the hidden states of teachers beside the first, of these configs, can be learned where they shall be.

    Raises:
        SettingsError: A method that counts padding, or learns no hidden states.
        ModelError: A teacher of fewer layers than the student, or of another width without projections.
    """
    terms = [term for phase in recipe.phases for term in phase.terms if term.weight and term.reads == "hidden"]
    published = any(term.reads == "hidden" for phase in RECIPES[recipe.name].phases for term in phase.terms)
    if settings.teacher.states == "first" or (published and not terms):  # whoever sets weights to 0 wants it so
        return
    if not terms:
        raise SettingsError(
            f"teacher.states = all with distill.mode = {recipe.name}, which learns no hidden states",
            fix="leave teacher.states out",
        )
    if any(term.fn is hidden_mse_reference for term in terms):
        raise SettingsError(
            f"teacher.states = all with distill.mode = {recipe.name}: its authors' code compares padding too, which "
            "is not joined between models",
            fix="choose distill.mode = paper",
        )
    hidden = replace(recipe, phases=tuple(replace(phase, terms=tuple(terms)) for phase in recipe.phases))
    for number, config in enumerate(configs, 2):
        _check_shape(
            student, Shape.of(config), "model", hidden, what=f"teacher.states = all, teacher {number}: a student"
        )


def _check_layers(settings: Settings, way: str, above: Shape) -> None:
    layers = settings.student.layers
    if layers is None:
        return
    if way not in ("shrunk", "layers"):
        raise SettingsError(
            f"student.layers with a student that starts {way}",
            expected="student.start = shrunk or layers",
            fix="leave student.layers out",
        )
    if isinstance(layers, tuple) and max(layers) >= above.layers:
        raise SettingsError(
            f"student.layers = {list(layers)}",
            expected=f"numbers from 0 to {above.layers - 1}",
            fix=f"count from 0: the last layer is {above.layers - 1}",
        )


def _check_shape(shape: Shape, teacher: Shape, way: str, recipe: Recipe, what: str = "a student") -> None:
    equal = shape.heads == teacher.heads
    terms = [term for phase in recipe.phases for term in by_heads(phase.terms, equal=equal)]
    inner = any(term.places in ("mapped", "inner", "middle") for term in terms)
    if shape.layers > teacher.layers and (inner or way == "layers"):
        raise ModelError(
            f"{what} of {shape.layers} layers under a teacher of {teacher.layers}",
            expected=f"{teacher.layers} layers or fewer",
            fix="choose a smaller student",
        )
    if shape.heads != teacher.heads and any(term.reads == "scores" or term.fn is value_kl for term in terms):
        fitting = f"a shape such as {shape.layers}x{max(1, shape.hidden // teacher.heads) * teacher.heads}"
        raise ModelError(
            f"{what} {shape} with {shape.heads} heads under a teacher with {teacher.heads}: "
            "the attention loss compares head with head",
            fix=f"choose {fitting}, leave that loss out (distill.weights.attention = 0, no general.texts), or take "
            "distill.mode = minilm2, whose relations need no equal heads",
        )
    bare = [term.name for term in terms if needs_projection(term)] if recipe.projection == "none" else []
    if bare and shape.hidden != teacher.hidden:
        raise ModelError(
            f"{what} {shape} under a teacher {teacher} wide: the {bare[0]} loss compares hidden states as they are",
            expected=f"{teacher.hidden} wide",
            fix="set distill.projection to each",
        )
    if way == "layers" and (shape.hidden, shape.ffn, shape.heads) != (teacher.hidden, teacher.ffn, teacher.heads):
        raise ModelError(
            f"student.start = layers with the shape {shape}",
            expected=f"the teacher's width: {shape.layers}x{teacher.hidden}x{teacher.ffn}x{teacher.heads}",
            fix='set student.start to "shrunk"',
        )
    larger = shape.hidden > teacher.hidden or shape.ffn > teacher.ffn or shape.layers > teacher.layers
    if way == "shrunk" and (larger or shape.heads > teacher.heads):
        raise ModelError(
            f"{what} {shape} shrunk from {teacher}", expected="no dimension larger", fix="choose a smaller shape"
        )


def check_starts(
    settings: Settings, config: PretrainedConfig, shapes: Sequence[Shape], way: str, recipe: Recipe, side: StudentSide
) -> None:
    """That the architecture allows each model of the chain to start as it shall."""
    if way == "model":
        if side.cut:
            _check_cut(settings, side)
        return
    for place, (above, shape) in enumerate(pairwise(shapes), 2):
        last = place == len(shapes)
        named = settings.student.layers or (recipe.layers if way == "layers" else None)
        if not last:
            chosen = kept_layers(shape, above)
        elif named is None:
            least = min(shape.layers, above.layers)  # one at random may have more
            chosen = tuple(layer for _, layer in layer_pairs(least, above.layers, settings.distill.mapping))
        else:
            chosen = chosen_layers(shape.layers, above.layers, named)
        check_start(student_config(config, above), shape, way if last else "shrunk", chosen)


def _check_cut(settings: Settings, side: StudentSide) -> None:
    """That another model, from which the student is shrunk, can be."""
    layers = layer_pairs(side.shape.layers, Shape.of(side.config).layers, settings.distill.mapping)
    check_start(side.config, side.shape, "shrunk", [layer for _, layer in layers])


def check_readable(configs: Sequence[PretrainedConfig], recipe: Recipe, *, general: bool, checkpointing: bool) -> None:
    """Losses on queries, keys and values need architectures whose parts are known; others any encoder.

    Losses that average over padding need attention to all tokens: padding that sees padding alone has no state.
    """
    phases = [*recipe.phases, *([recipe.general] if general and recipe.general else [])]
    over_padding = padding_read([term for phase in phases for term in phase.terms if term.weight])
    if over_padding is not None and any(getattr(config, "sliding_window", None) for config in configs):
        raise ModelError(
            f"distill.mode = {recipe.name} with local attention: its {over_padding} loss compares padding too, as its "
            "authors' code does, and what stands there is not defined where attention is local",
            fix="choose distill.mode = paper",
        )
    inner = ("scores", "queries", "keys", "values")
    needing = [term.name for phase in phases for term in phase.terms if term.weight and term.reads in inner]
    for config in configs:
        if checkpointing and config.model_type not in ANATOMIES:
            raise ModelError(
                f"distill.gradient_checkpointing with a model of type {config.model_type!r}, of unknown layers",
                expected=f"one of {', '.join(sorted(ANATOMIES))}",
                fix="leave distill.gradient_checkpointing out, or set distill.accumulate",
            )
        if config.model_type not in ANATOMIES and needing:
            raise ModelError(
                f"the {needing[0]} loss of distill.mode = {recipe.name} with a model of type {config.model_type!r}, "
                "whose queries and keys cannot be read",
                expected=f"one of {', '.join(sorted(ANATOMIES))}",
                fix="set distill.weights.attention to 0, or choose distill.mode = logits, pkd, fitnets or vectors",
            )


def check_masked(settings: Settings, teacher: Source, recipe: Recipe, configs: Sequence[PretrainedConfig]) -> None:
    """Methods that learn the teacher's words need a teacher that has some."""
    general = recipe.general
    if not settings.general.texts or general is None or general.objective != "masked":
        return
    MaskVocabulary.of(Tokenizer.from_file(str(teacher.paths[0] / "tokenizer.json")))
    needed = any(term.weight and term.reads != "masked" for term in general.terms)
    if any(config.model_type not in ANATOMIES for config in configs):
        raise ModelError(
            f"distill.mode = {recipe.name} on plain text with a model whose masked-LM head is not known",
            expected=f"one of {', '.join(sorted(ANATOMIES))}",
            fix="leave general.texts out, or choose distill.mode = vectors",
        )
    if needed and not has_masked_lm_head(teacher.paths[0]):
        raise ModelError(
            f"{teacher.name} has no masked-LM head, whose words {recipe.name} learns",
            fix="train one with potstill pretrain --objective masked, and give its model/ as the teacher",
        )


def check_vocabulary(settings: Settings, folder: Path) -> None:
    """A vocabulary that can be cut, as small as it is wanted."""
    wanted = settings.student.vocabulary
    if wanted == "full":
        return
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    kept_pieces(tokenizer, np.zeros(max(tokenizer.get_vocab().values()) + 1, dtype=np.int64), most=_number(wanted))
    if not isinstance(settings.student.assistants, str) and settings.data.long_text == "window":
        raise SettingsError(
            f"student.vocabulary = {wanted} with assistants and texts in windows",
            expected="windows of the same pieces in every model of the chain",
            fix='set student.vocabulary to "full", data.long_text to "cut", or leave the assistants out',
        )


def _number(vocabulary: str | int) -> int | None:
    return vocabulary if isinstance(vocabulary, int) else None
