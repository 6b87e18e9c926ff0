"""What a recipe is: phases, each with its loss terms and hyper-parameters. Declared, so that they can be printed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from potstill.errors import ModelError, SettingsError
from potstill.recipes.terms import HARD, Places, Term
from potstill.tasks import Task
from potstill.training.program import LossTerm, Ramp, Value

__all__ = [
    "LayerChoice",
    "LayerMapping",
    "Phase",
    "Projection",
    "Recipe",
    "Term",
    "build_terms",
    "by_heads",
    "chosen_layers",
    "for_task",
    "in_units",
    "layer_pairs",
    "of_several_teachers",
    "scaled",
    "with_loss",
    "with_overrides",
]

LayerMapping = Literal["uniform", "top", "bottom"]
Projection = Literal["shared", "each", "none"]
LayerChoice = Literal["every-other", "top", "bottom", "ends"]


@dataclass(frozen=True)
class Phase:
    """One training of the student.

    Attributes:
        name: `general`, `intermediate`, `prediction` or `distil`.
        terms: The losses.
        epochs: Passes over the (augmented) data; None means as many as `examples` asks for.
        examples: Examples to see where `epochs` is None.
        batch_size, learning_rate: Of a step; the rate is the peak.
        warmup, decay, average: As in `potstill.training.Schedule`.
        objective: What general distillation does with its text: `states` reads it as it is, `masked` masks it, for
            terms on words.
        dropout: Whether the student's dropout is on.
        augmented: Whether augmented texts are read beside the originals.
        reference_width: The hidden size that `learning_rate` is for; others get it in inverse proportion. None means
            the same rate for every width.
    """

    name: Literal["general", "intermediate", "prediction", "distil"]
    terms: tuple[Term, ...]
    epochs: int | None
    batch_size: int
    learning_rate: float
    examples: int = 0
    warmup: float = 0.1
    decay: Literal["linear", "constant"] = "linear"
    average: float = 0.0
    dropout: bool = True
    augmented: bool = True
    reference_width: int | None = None
    objective: Literal["states", "masked"] = "states"

    def rate(self, width: int) -> float:
        """Peak learning rate for a student of hidden size `width`."""
        return self.learning_rate * (1.0 if self.reference_width is None else self.reference_width / width)


@dataclass(frozen=True)
class Recipe:
    """A method, as published or our own.

    Attributes:
        name: As in `distill.mode`.
        phases: Task distillation, in order.
        general: Distillation on plain text with the un-fine-tuned teacher; run where texts are given. None: the method
            has none.
        copies: Augmented texts for each text.
        start: How the student starts where the settings leave it open.
        layers: Which of the teacher's layers it starts from where the settings leave it open; None: those of the
            mapping, which says what teaches it in any case.
        projection: Of hidden states, from the student's width to the teacher's: one with bias for all terms (the
            released TinyBERT), one for each term without, or none, where the widths must be equal.
        weight_decay, clip: The optimiser's.
        gold_on: Kinds of task on which the terms on logits learn the gold answers, not the teacher's.
        assistant: What an assistant between teacher and student learns, in order; one is then put there where the
            settings leave that open. Empty: as the student does, and only where the settings name one.
        original_on: Kinds of task on which no text is augmented unless that is asked for: another word is another
            score, and TinyBERT's authors left STS-B as it is.
    """

    name: str
    phases: tuple[Phase, ...]
    general: Phase | None
    copies: int
    start: Literal["shrunk", "layers", "random"]
    projection: Projection
    layers: LayerChoice | None = None
    weight_decay: float = 0.01
    clip: float = 1.0
    gold_on: tuple[str, ...] = ()
    assistant: tuple[Phase, ...] = ()
    original_on: tuple[str, ...] = ("regression",)

    @property
    def teaches_the_task(self) -> bool:
        """Whether the task's phases learn from the teacher at all, and not from the labels alone."""
        return any(term.weight and term.reads != "labels" for phase in self.phases for term in phase.terms)


def layer_pairs(student: int, teacher: int, mapping: LayerMapping) -> tuple[tuple[int, int], ...]:
    """(student layer, teacher layer), 1-based, for each student layer m of M and N teacher layers.

    `uniform` ⌊m·N/M⌋, `top` m + N − M, `bottom` m: TinyBERT, section 3.1 and table 4.

    Raises:
        ModelError: More student layers than teacher layers.
    """
    if student > teacher:
        raise ModelError(f"a student of {student} layers under a teacher of {teacher}", expected="no more layers")
    layers = range(1, student + 1)
    match mapping:
        case "uniform":
            return tuple((m, m * teacher // student) for m in layers)
        case "top":
            return tuple((m, m + teacher - student) for m in layers)
        case "bottom":
            return tuple((m, m) for m in layers)


def chosen_layers(student: int, teacher: int, choice: LayerChoice | Sequence[int]) -> tuple[int, ...]:
    """Teacher layers (1-based), one for each student layer, ascending: Sajjad et al. 2020, arXiv 2004.03844.

    `every-other` from the first to the last, as DistilBERT's students start (of 12: 1, 3, 5, 8, 10, 12); `top` and
    `bottom` the last and the first; `ends` half of either, the middle dropped. Numbers count from 0.

    Raises:
        ModelError: More student layers than teacher layers.
    """
    if not isinstance(choice, str):
        return tuple(number + 1 for number in choice)
    if student > teacher:
        raise ModelError(f"a student of {student} layers under a teacher of {teacher}", expected="no more layers")
    match choice:
        case "every-other":
            return tuple(1 + round(m * (teacher - 1) / max(1, student - 1)) for m in range(student))
        case "top":
            return tuple(range(teacher - student + 1, teacher + 1))
        case "bottom":
            return tuple(range(1, student + 1))
        case "ends":
            first = (student + 1) // 2
            return (*range(1, first + 1), *range(teacher - (student - first) + 1, teacher + 1))


def by_heads(terms: Sequence[Term], *, equal: bool) -> tuple[Term, ...]:
    """The terms above weight 0 for models of as many heads (`equal`), or of different numbers."""
    found: list[Term] = []
    for term in terms:
        others = () if equal else term.otherwise
        found += [replace(other, weight=term.weight) for other in others] or [term]
    return tuple(term for term in found if term.weight)


def build_terms(
    phase: Phase,
    *,
    student: int,
    teacher: int,
    mapping: LayerMapping,
    temperature: Value | None = None,
    layers: Sequence[int] | None = None,
    equal_heads: bool = True,
) -> tuple[LossTerm, ...]:
    """The phase's terms for models of `student` and `teacher` layers; terms of weight 0 are left out.

    Args:
        phase: Its terms.
        student: Layers of the student.
        teacher: Layers of the teacher.
        mapping: Which teacher layer teaches which student layer.
        temperature: Of soft targets; None means each term's own.
        layers: Teacher layer (1-based) of each student layer, in place of the mapping; None means the mapping.
        equal_heads: Whether the models have as many attention heads.

    Raises:
        ModelError: A term on mapped layers under a teacher of fewer layers.
    """
    terms = by_heads(phase.terms, equal=equal_heads)
    inner = any(term.places in ("mapped", "inner", "middle") for term in terms)
    pairs = layer_pairs(student, teacher, mapping) if inner and layers is None else tuple(enumerate(layers or (), 1))
    places: Mapping[Places, tuple[tuple[int, int], ...]] = {
        "none": (),
        "embedding": ((0, 0),),
        "mapped": pairs,
        "inner": pairs[:-1] or pairs,
        "middle": pairs[(len(pairs) - 1) // 2 :][:1],
        "last": ((student, teacher),),
    }
    return tuple(
        LossTerm(
            term.name,
            term.fn,
            places[term.places],
            term.weight,
            term.temperature if temperature is None else temperature,
            term.reads,
        )
        for term in terms
    )


def of_several_teachers(built: Sequence[Sequence[LossTerm]], shares: Sequence[float] = ()) -> tuple[LossTerm, ...]:
    """One list of terms: the first teacher's, and of each further one those on hidden states as `hidden-2` and so on.

    L_hidden = Σ_k s_k/Σs · L_k over the teachers k. Attention and relations stay with the first: they compare heads and
    pairs of tokens, in which teachers differ.

    Args:
        built: By `build_terms` for the layers of each teacher, the first's first; one alone is given back as it is.
        shares: Above 0, one for each; none means the same for all.
    """
    if len(built) == 1:
        return tuple(built[0])
    total = sum(shares) or float(len(built))

    def weighed(term: LossTerm, number: int) -> LossTerm:
        if term.reads != "hidden":
            return term
        name = term.name if number == 1 else f"{term.name}-{number}"
        share = (shares[number - 1] if shares else 1.0) / total
        return replace(term, name=name, weight=scaled(term.weight, share), teacher=number)

    return tuple(
        weighed(term, number)
        for number, terms in enumerate(built, 1)
        for term in terms
        if number == 1 or term.reads == "hidden"
    )


def scaled(weight: Value, factor: float) -> Value:
    """A weight times a factor; a ramp at both ends."""
    return Ramp(weight.start * factor, weight.end * factor) if isinstance(weight, Ramp) else weight * factor


def for_task(recipe: Recipe, task: Task) -> Recipe:
    """The recipe, which is written down for labels, for another kind of answer.

    Terms on labels take the task's loss, those on logits its distillation loss; what the method's authors did otherwise
    on such a task (`gold_on`, `original_on`) is done.
    """

    def change(term: Term) -> Term:
        if term.reads == "labels":
            return replace(term, fn=task.loss)
        if term.reads == "logits" and task.kind in recipe.gold_on:
            return replace(HARD, fn=task.loss, weight=term.weight)
        return replace(term, fn=task.distillation_loss(term.fn)) if term.reads == "logits" else term

    def changed(phase: Phase) -> Phase:
        gold = task.kind in recipe.gold_on and any(term.reads == "logits" for term in phase.terms)
        # A term on labels that waits for a weight would stand there twice.
        kept = [term for term in phase.terms if not (gold and term.reads == "labels")]
        return replace(phase, terms=tuple(map(change, kept)))

    phases, assistant = tuple(map(changed, recipe.phases)), tuple(map(changed, recipe.assistant))
    copies = 0 if task.kind in recipe.original_on else recipe.copies
    return replace(recipe, phases=phases, assistant=assistant, copies=copies)


def with_loss(terms: Sequence[LossTerm], task: Task) -> tuple[LossTerm, ...]:
    """The terms, those on gold answers with the loss of the task as its data are: class weights are known by then."""
    return tuple(replace(term, fn=task.loss) if term.reads == "labels" else term for term in terms)


def in_units(terms: Sequence[LossTerm], unit: float) -> tuple[LossTerm, ...]:
    """The terms, those on answers weighed in squares of `unit`: the spread of the scores, 1 for labels."""
    answers = ("labels", "logits")
    return tuple(
        replace(term, weight=scaled(term.weight, 1 / unit**2)) if term.reads in answers else term for term in terms
    )


def with_overrides(
    recipe: Recipe,
    *,
    weights: Mapping[str, Value | None],
    epochs: int | None,
    batch_size: int | None,
    learning_rate: float | None,
    projection: Projection | None = None,
) -> Recipe:
    """The recipe with what the user set: each override holds for every task phase, the assistants' too.

    None leaves the recipe's own.

    Phases all of whose weights are 0 are left out.

    Raises:
        SettingsError: A weight for a term that the recipe does not have, or no phase with a weight above 0.
    """
    known = sorted({term.name for phase in recipe.phases for term in phase.terms})
    if unknown := [name for name, weight in weights.items() if weight and name not in known]:
        raise SettingsError(
            f"distill.weights.{unknown[0]} in the recipe {recipe.name!r}, which has no such term",
            expected=f"one of {', '.join(known)}",
            fix="leave it out, or choose a distill.mode that has it (docs/methods)",
        )

    def change(phase: Phase) -> Phase:
        terms = tuple(
            replace(term, weight=chosen) if (chosen := weights.get(term.name)) is not None else term
            for term in phase.terms
        )
        return replace(
            phase,
            terms=terms,
            epochs=phase.epochs if epochs is None else epochs,
            batch_size=phase.batch_size if batch_size is None else batch_size,
            learning_rate=phase.learning_rate if learning_rate is None else learning_rate,
            reference_width=phase.reference_width if learning_rate is None else None,
        )

    def changed(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        return tuple(phase for phase in map(change, phases) if any(term.weight for term in phase.terms))

    phases, assistant = changed(recipe.phases), changed(recipe.assistant)
    if not phases:
        raise SettingsError("distill.weights that are all 0", expected="one above 0")
    return replace(recipe, phases=phases, assistant=assistant, projection=projection or recipe.projection)
