"""What an ablation changes, cell by cell, and what TinyBERT's paper found where it changed the same.

The paper (Jiao et al. 2020, arXiv 1909.10351, tables 2 to 4) gives dev scores of its 4x312 student; the figures here
are its averages over MNLI-m, MNLI-mm, MRPC and CoLA.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from potstill.config import AblateSettings, Settings
from potstill.errors import SettingsError
from potstill.recipes import RECIPES, Recipe, for_task
from potstill.recipes.tinybert import PAPER
from potstill.tasks import make_task

__all__ = ["FULL", "PAPER_FULL", "Cell", "PaperRow", "cell_settings", "cells_of", "chosen_cells"]

FULL = "full"
PAPER_FULL = 75.6
STATES = ("embedding", "hidden", "attention")
STARTS = {
    "shrunk": "shrunk from the teacher with its own data",
    "layers": "some of the teacher's layers as they are",
    "random": "random weights",
}


@dataclass(frozen=True)
class PaperRow:
    """A row of one of the paper's tables.

    Attributes:
        table: Its number.
        name: What the paper calls it.
        average: In per cent.
    """

    table: int
    name: str
    average: float

    @property
    def difference(self) -> float:
        """From the paper's full recipe, as a fraction."""
        return round(self.average - PAPER_FULL, 6) / 100


@dataclass(frozen=True)
class Cell:
    """The distillation with one thing changed.

    Attributes:
        name: As in `ablate.cells`.
        title: In words.
        group: What kind of thing it is.
        changes: Dotted settings key → value, beside the settings that all cells share.
        paper: What the paper found; None where it has no such row.
    """

    name: str
    title: str
    group: Literal["recipe", "losses", "layers", "start", "texts"]
    changes: Mapping[str, Any] = field(default_factory=dict)
    paper: PaperRow | None = None


_PAPER = {
    FULL: PaperRow(2, "TinyBERT", PAPER_FULL),
    "no-general": PaperRow(2, "w/o general distillation", 72.5),
    "labels-alone": PaperRow(2, "w/o task distillation", 68.5),
    "no-augmentation": PaperRow(2, "w/o data augmentation", 68.4),
    "no-embedding": PaperRow(3, "w/o embedding loss", 74.1),
    "no-logits": PaperRow(3, "w/o prediction loss", 73.5),
    "no-transformer": PaperRow(3, "w/o Transformer losses", 56.3),
    "no-attention": PaperRow(3, "w/o attention", 71.0),
    "no-hidden": PaperRow(3, "w/o hidden states", 72.9),
    "top-mapping": PaperRow(4, "top", 70.9),
    "bottom-mapping": PaperRow(4, "bottom", 71.3),
}


def cells_of(settings: AblateSettings, *, start: str, shape: str, assistants: Sequence[str] = ()) -> tuple[Cell, ...]:
    """Every cell that the settings admit, the full recipe first.

    Args:
        settings: Of the ablation.
        start: How the full recipe's student starts: shrunk, layers, random, or `model`.
        shape: Its shape.
        assistants: Shapes of those that stand between teacher and student.
    """
    recipe = for_task(RECIPES[settings.distill.mode], make_task(settings.data.task))
    used = _weights(settings, recipe)
    found = [Cell(FULL, "the recipe as it is", "recipe")]
    found += _losses(used)
    found += _mappings(settings, recipe, used, start)
    # Where the method decides on assistants, a cell that changes something else keeps those of the full recipe.
    kept: dict[str, Any] = {}
    if settings.student.assistants == "auto" and recipe.assistant:
        kept = {"student.assistants": tuple(assistants) or "none"}
    found += _starts(start, shape, kept)
    if assistants:
        title = "the student right below the teacher"
        found.append(Cell("no-assistant", title, "start", {"student.assistants": "none"}))
    found += _texts(settings, recipe, kept)
    return tuple(Cell(c.name, c.title, c.group, c.changes, _PAPER.get(c.name)) for c in found)


def chosen_cells(every: tuple[Cell, ...], names: tuple[str, ...]) -> tuple[Cell, ...]:
    """The cells named, in the order of `every`, with the full recipe; all where none is named.

    Raises:
        SettingsError: A name that is no cell's here.
    """
    known = [cell.name for cell in every]
    if unknown := [name for name in names if name not in known]:
        near = difflib.get_close_matches(unknown[0], known, 1, 0.6)
        raise SettingsError(
            f"ablate.cells names {unknown[0]}, which these settings do not have",
            expected=f"some of {', '.join(known)}",
            fix=f"did you mean {near[0]}?" if near else "see --list",
        )
    return tuple(cell for cell in every if not names or cell.name in (FULL, *names))


def cell_settings(settings: AblateSettings, changes: Mapping[str, Any], seed: int) -> Settings:
    """The settings of a cell's distillation: those given, what it changes, its seed; nothing that it does not need.

    Raises:
        SettingsError: Changes that do not go together with the rest.
    """
    values = settings.model_dump(exclude={"ablate"})
    always: dict[str, Any] = {
        "evaluate.hard_labels": False,
        "evaluate.tfidf": False,
        "evaluate.baseline": None,
        "export.formats": (),
        "run.budget": settings.ablate.minutes,
        "run.seed": seed,
    }
    if settings.teacher.cache == "auto":  # a cell must not find what one before it has spent its time on
        always["teacher.cache"] = "none"
    for key, value in {**always, **changes}.items():
        *path, last = key.split(".")
        section = values
        for name in path:
            section = section[name]
        section[last] = value
    return Settings.model_validate(values)


def _weights(settings: Settings, recipe: Recipe) -> dict[str, float]:
    """1 for each of the recipe's terms on the task that some phase uses, at whatever weight, and 0 for the others."""
    chosen = settings.distill.weights.model_dump()
    found: dict[str, float] = {}
    for term in (term for phase in recipe.phases for term in phase.terms):
        weight = term.weight if chosen.get(term.name) is None else chosen[term.name]
        found[term.name] = max(1.0 if weight else 0.0, found.get(term.name, 0.0))
    return found


def _losses(weights: Mapping[str, float]) -> Iterator[Cell]:
    used = [name for name, weight in weights.items() if weight]
    seen = [{name: bool(weight) for name, weight in weights.items()}]

    def cell(name: str, title: str, changed: Mapping[str, float]) -> Iterator[Cell]:
        """None where nothing would be left, or another cell is the same."""
        effect = {term: bool(weight) for term, weight in {**weights, **changed}.items()}
        if any(effect.values()) and effect not in seen:
            seen.append(effect)
            yield Cell(name, title, "losses", {f"distill.weights.{term}": weight for term, weight in changed.items()})

    def alone(kept: str) -> dict[str, float]:
        return {**{name: 0.0 for name in used if name != kept}, kept: 1.0}

    # First those that have a name of their own: of a recipe of two terms they are also "without the other".
    if "hard" in weights:
        yield from cell("labels-alone", "the labels alone, no teacher", alone("hard"))
    if "logits" in weights:
        yield from cell("logits-alone", "the teacher's answers alone", alone("logits"))
    for name in used if weights.get("logits") else [name for name in used if name != "hard"]:
        title, changed = _without(name, weights)
        yield from cell(f"no-{name}", title, changed)
    inner = [name for name in ("hidden", "attention") if name in used]
    if len(inner) == 2:
        yield from cell("no-transformer", "without hidden and attention losses", dict.fromkeys(inner, 0.0))
    states = [name for name in STATES if name in used]
    yield from cell("no-states", f"without {', '.join(states)} losses", dict.fromkeys(states, 0.0))
    for name in (name for name, weight in weights.items() if not weight):
        yield from cell(f"with-{name}", f"with the {name} loss, which the recipe leaves out", {name: 1.0})


def _without(name: str, weights: Mapping[str, float]) -> tuple[str, dict[str, float]]:
    """A title and weights; something on answers stays, else nothing would train the head."""
    if name == "logits" and weights.get("hard") == 0.0:
        return "without the logits loss: labels in its place", {"logits": 0.0, "hard": 1.0}
    return f"without the {name} loss", {name: 0.0}


def _mappings(settings: Settings, recipe: Recipe, used: Mapping[str, float], start: str) -> Iterator[Cell]:
    terms = [term for phase in (*recipe.phases, recipe.general) if phase for term in phase.terms]
    taught = any(used.get(term.name) and term.places in ("mapped", "inner", "middle") for term in terms)
    own_layers = start in ("shrunk", "layers") and recipe.layers is None
    if settings.student.layers is not None or not (taught or own_layers):
        return
    words = {"uniform": "layers spread evenly", "top": "the last layers", "bottom": "the first layers"}
    verbs = " and ".join([*(["teach"] if taught else []), *(["start the student"] if own_layers else [])])
    for mapping in ("uniform", "top", "bottom"):
        if mapping != settings.distill.mapping:
            yield Cell(f"{mapping}-mapping", f"{words[mapping]} {verbs}", "layers", {"distill.mapping": mapping})


def _starts(start: str, shape: str, kept: Mapping[str, Any]) -> Iterator[Cell]:
    for way, words in STARTS.items():
        if way != start:
            changes: dict[str, Any] = {"student.start": way, "student.shape": shape, **kept}
            if way == "random":
                changes["student.layers"] = None
            yield Cell(f"{way}-start", f"start: {words}", "start", changes)


def _texts(settings: Settings, recipe: Recipe, kept: Mapping[str, Any]) -> Iterator[Cell]:
    augment = settings.augment
    copies = recipe.copies if augment.copies is None else augment.copies
    if any(phase.augmented for phase in recipe.phases):
        if augment.method != "none" and copies:
            unused = {} if augment.model is None else {"augment.model": None}  # it is refused beside "none"
            yield Cell("no-augmentation", "without augmented texts", "texts", {"augment.method": "none", **unused})
        else:
            made = {"augment.method": "auto", "augment.copies": copies or PAPER.copies}
            yield Cell("with-augmentation", "with augmented texts", "texts", made)
    if settings.general.texts:
        yield Cell("no-general", "without general distillation", "texts", {"general.texts": (), **kept})
