"""What a run works on, resolved before any work: sources, the teacher's config, the student's shape, the recipe."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from transformers import PretrainedConfig

from potstill.config import Settings, TuningSettings
from potstill.config.kinds import DEFAULT_SHAPE
from potstill.data.schema import Columns
from potstill.data.sources import Source, resolve_data, resolve_model
from potstill.errors import ModelError, SettingsError
from potstill.models.student import Shape
from potstill.models.teacher import has_classifier
from potstill.pipeline.assistants import choose_assistants
from potstill.pipeline.augmenting import Augmenting, choose_augmenting
from potstill.pipeline.findings import ScoresFile
from potstill.pipeline.inputs import check_texts, check_windows, checked_model, labelled_data
from potstill.pipeline.model_checks import (
    check_further,
    check_masked,
    check_readable,
    check_shapes,
    check_starts,
    check_vocabulary,
)
from potstill.pipeline.scored import read_scored
from potstill.pipeline.sides import StudentSide, learnable, student_side
from potstill.pipeline.training import Conditions
from potstill.pipeline.under_scores import adapted, base_of, method_under_scores
from potstill.progress import Reporter
from potstill.recipes import RECIPES, Recipe, chosen_layers, for_task, with_overrides
from potstill.recipes.recipe import LayerChoice
from potstill.storage import digest_file
from potstill.tasks import make_task
from potstill.training import Ramp, Value

__all__ = ["Job", "is_trained", "prepare_job", "teacher_name"]

STARTS = ("shrunk", "layers", "random")


@dataclass(frozen=True)
class Job:
    """A checked run.

    Attributes:
        settings: As resolved.
        data: Role (train, dev, test) → source; absent roles are cut from train or do not exist.
        unlabelled, texts: Sources of unlabelled rows and of plain text.
        teacher, baseline: Sources of models. Where scores teach, `teacher` is the model that the student is made from.
        more: Further teachers, whose answers are averaged with the first's.
        config: The teacher's.
        columns: Where text, pair and label stand.
        side: What the student starts from, and how it reads.
        assistants: Shapes between teacher and student, largest first.
        recipe: With the settings' overrides, and without what the two sides cannot compare.
        notes: What the plan and the report say of that.
        augmenting: How training texts are multiplied.
        scores: The file of scores that teaches; None where a model does.
    """

    settings: Settings
    data: dict[str, Source]
    unlabelled: tuple[Source, ...]
    texts: tuple[Source, ...]
    teacher: Source
    more: tuple[Source, ...]
    baseline: Source | None
    config: PretrainedConfig
    columns: Columns
    side: StudentSide
    assistants: tuple[Shape, ...]
    recipe: Recipe
    notes: tuple[str, ...]
    augmenting: Augmenting
    scores: ScoresFile | None = None

    @property
    def teachers(self) -> tuple[Source, ...]:
        """All of them, the first first."""
        return (self.teacher, *self.more)

    @property
    def heard_further(self) -> tuple[Source, ...]:
        """Further teachers whose hidden states the student learns too."""
        return self.more if self.settings.teacher.states == "all" else ()

    @property
    def teacher_shares(self) -> tuple[float, ...]:
        """How much the answers of each count."""
        return self.settings.teacher.shares or (1.0,) * len(self.teachers)

    @property
    def shape(self) -> Shape:
        """The student's."""
        return self.side.shape

    @property
    def start(self) -> Source | None:
        """The model that the student starts from, where that is not the teacher."""
        return self.side.source

    @property
    def way(self) -> str:
        """How the student starts: shrunk, layers, random, or `model`."""
        return _way(self.settings, self.start, self.recipe)

    @property
    def tuning(self) -> TuningSettings:
        """How teachers, and the small baseline, are fine-tuned."""
        return self.settings.teacher

    @property
    def sources(self) -> tuple[tuple[str, Source], ...]:
        """Every data source with its role, as the report names them."""
        found = [*self.data.items(), *(("unlabelled", one) for one in self.unlabelled)]
        found += [("text", one) for one in self.texts]
        return (*found, *((("scores", self.scores.source),) if self.scores else ()))

    @property
    def labelled(self) -> bool:
        """Whether train has gold labels."""
        return self.scores is None or self.scores.findings.gold["train"]

    @property
    def layers(self) -> tuple[int, ...] | None:
        """Layers (1-based) of the model above the student, where the settings name them; they say which teach which."""
        return self._chosen(self.settings.student.layers)

    @property
    def start_layers(self) -> tuple[int, ...] | None:
        """Layers (1-based) that the student is made from, where settings or method name them."""
        return self.layers or self._chosen(self.recipe.layers if self.way == "layers" else None)

    def _chosen(self, named: LayerChoice | tuple[int, ...] | None) -> tuple[int, ...] | None:
        above = self.assistants[-1] if self.assistants else Shape.of(self.config)
        return None if named is None else chosen_layers(self.shape.layers, above.layers, named)

    @property
    def temperature(self) -> Value | None:
        """Of the logits term, where the settings name it."""
        return _value(self.settings.distill.temperature)

    @property
    def conditions(self) -> Conditions:
        """Of its trainings."""
        run = self.settings.run
        return Conditions(run.seed, self.settings.distill.precision, 60 * run.checkpoint_minutes)

    @property
    def files(self) -> dict[str, str]:
        """Digests of further files that the settings name."""
        augment = self.settings.augment
        named = {"vectors": augment.vectors, "stop_words": augment.stop_words}
        return {name: digest_file(Path(path)) for name, path in named.items() if path is not None}


def prepare_job(settings: Settings, report: Reporter) -> Job:
    """Resolve every source and check what can be checked before any work.

    Raises:
        InputError: A source that cannot be had, a teacher that is no encoder, a shape that cannot be.
    """
    data, columns = labelled_data(settings.data, report)
    unlabelled = tuple(resolve_data(name, report=report) for name in settings.data.unlabelled)
    if settings.teacher.scores is not None:
        settings = adapted(settings)
    teacher = resolve_model(settings.teacher.source or base_of(settings, STARTS), report=report)
    config = checked_model(teacher)
    check_windows(settings.data, teacher, config)
    more = tuple(resolve_model(name, report=report) for name in settings.teacher.more)
    further = [checked_model(other) for other in more]
    for other, own in zip(more, further, strict=True):
        check_windows(settings.data, other, own)
    _check_different((teacher, *more))
    _check_temperature(settings)
    start = None
    if settings.student.start is not None and settings.student.start not in STARTS:
        named = teacher if settings.teacher.scores else resolve_model(settings.student.start, report=report)
        start = named, checked_model(named)
        check_windows(settings.data, *start, longest=settings.student.max_length)
    side = student_side(settings, teacher, config, start)
    if settings.teacher.scores is not None and side.cut:
        side = replace(side, source=None)  # shrunk from the base, which is in the teacher's place
    baseline = None
    if settings.evaluate.baseline is not None:
        baseline = resolve_model(settings.evaluate.baseline, report=report)
        checked_model(baseline)
    recipe, notes = _recipe(settings), tuple[str, ...]()
    if settings.teacher.scores is None:
        recipe, notes = learnable(recipe, settings, side)
        _check_answers(settings, recipe)
    scores = None
    if settings.teacher.scores is not None:
        source = resolve_data(settings.teacher.scores, report=report)
        findings = read_scored(settings, data, unlabelled, source, columns, report).findings
        scores = ScoresFile(source, findings)
        recipe, left_out = method_under_scores(recipe, settings, findings)
        notes += left_out
    way = _way(settings, side.source, recipe)
    assistants = choose_assistants(settings, config, side.shape, way, recipe)
    notes += _head_notes(settings, config, side)
    shapes = (Shape.of(config), *assistants, side.shape)
    check_shapes(settings, shapes, way, recipe)
    check_further(settings, further, side.shape, recipe)
    check_starts(settings, config, shapes, way, recipe, side)
    configs = (config, side.config)
    check_readable(
        configs, recipe, general=bool(settings.general.texts), checkpointing=settings.distill.gradient_checkpointing
    )
    _check_extras(settings)
    check_vocabulary(settings, side.folder)
    check_masked(settings, teacher, recipe, configs)
    texts = tuple(resolve_data(name, report=report) for name in settings.general.texts)
    check_texts(texts, "general.texts", report)
    return Job(
        settings=settings,
        data=data,
        unlabelled=unlabelled,
        texts=texts,
        teacher=teacher,
        more=more,
        baseline=baseline,
        config=config,
        columns=columns,
        side=side,
        assistants=assistants,
        recipe=recipe,
        notes=notes,
        augmenting=choose_augmenting(
            settings, recipe, teacher, [side.folder, *(source.paths[0] for source in more)], report
        ),
        scores=scores,
    )


def _way(settings: Settings, start: Source | None, recipe: Recipe) -> str:
    if start is not None:
        return "model"
    named = settings.student.start
    return named if named in STARTS else recipe.start


def teacher_name(number: int) -> str:
    """The stage of a teacher, and its name in reports; the first is number 1."""
    return "teacher" if number == 1 else f"teacher-{number}"


def is_trained(job: Job, teacher: Source | None = None) -> bool:
    """Whether a teacher (None: the first) has a head already, and is taken as it is; scores always are."""
    if job.scores is not None:
        return True
    named = job.settings.teacher.trained
    return has_classifier((teacher or job.teacher).paths[0]) if named == "auto" else named


def _head_notes(settings: Settings, teacher: PretrainedConfig, side: StudentSide) -> tuple[str, ...]:
    """A width that the heads of the model above do not divide gets fewer: said where the user named no number."""
    wanted, named = settings.student.shape, settings.student.assistants
    found = [("student.assistants", text, teacher, "assistant") for text in (() if isinstance(named, str) else named)]
    if side.source is None or wanted is not None:
        found.append(("student.shape", wanted or DEFAULT_SHAPE, side.config, "student"))
    notes = []
    for key, text, above, made in found:
        shape, heads = Shape.under(text, above), int(above.num_attention_heads)
        if text.count("x") == 1 and shape.heads != heads:
            whose = "the teacher's" if above is teacher and settings.teacher.scores is None else "its model's"
            notes.append(
                f"{key} {text}: {shape.hidden} cannot be cut into {whose} {heads} heads, so the {made} has "
                f"{shape.heads}; a width such as {max(1, shape.hidden // heads) * heads} keeps {heads}"
            )
    return tuple(notes)


def _check_extras(settings: Settings) -> None:
    """Exports need packages that are optional: told before a training, not after it."""
    needed = {"onnx": ("onnx", "onnxruntime", "onnxscript"), "openvino": ("openvino", "nncf")}
    for extra, packages in needed.items():
        named = [name for name in settings.export.formats if name.startswith(extra)]
        lacking = [package for package in packages if importlib.util.find_spec(package) is None]
        if named and lacking:
            raise ModelError(
                f"export.formats names {', '.join(named)}, and {', '.join(lacking)} is not installed",
                fix=f'pip install "potstill[{extra}]", or leave them out of export.formats',
            )


def _check_different(teachers: Sequence[Source]) -> None:
    for (number, one), (also, other) in combinations(enumerate(teachers, 1), 2):
        if one.sha256 == other.sha256:
            raise SettingsError(
                f"the teachers {number} and {also} ({one.name}, {other.name}) are the same model",
                expected="different ones",
                fix="give it once; teacher.shares says how much it counts beside others",
            )


def _check_answers(settings: Settings, recipe: Recipe) -> None:
    read = ("logits", "hidden") if settings.teacher.states == "all" else ("logits",)
    terms = [term for phase in recipe.phases for term in phase.terms if term.weight]
    if settings.teacher.more and all(term.reads not in read for term in terms):
        raise SettingsError(
            f"several teachers under distill.mode = {recipe.name}, which learns no teacher's answers",
            expected="a loss on answers, which are averaged",
            fix="leave out all teachers but one, or choose distill.mode = potstill or logits",
        )


def _check_temperature(settings: Settings) -> None:
    if settings.teacher.more and isinstance(_value(settings.distill.temperature), Ramp):
        raise SettingsError(
            f"distill.temperature = {list(settings.distill.temperature or ())} with several teachers",  # type: ignore[arg-type]
            expected="one number: their answers are averaged at it",
            fix="set one temperature, or leave teacher.more out",
        )


def _recipe(settings: Settings) -> Recipe:
    chosen = settings.distill
    found = with_overrides(
        for_task(RECIPES[chosen.mode], make_task(settings.data.task)),
        weights={name: _value(given) for name, given in chosen.weights.model_dump().items()},
        epochs=chosen.epochs,
        batch_size=chosen.batch_size,
        learning_rate=chosen.learning_rate,
        projection=chosen.projection,
    )
    for phase in found.phases:
        if phase.batch_size % chosen.accumulate:
            fitting = [count for count in range(1, phase.batch_size + 1) if phase.batch_size % count == 0]
            raise SettingsError(
                f"distill.accumulate = {chosen.accumulate} parts of {phase.batch_size} examples",
                expected=f"one of {', '.join(map(str, fitting))}",
                fix="choose one of these, or another distill.batch_size",
            )
    return found


def _value(given: float | tuple[float, float] | None) -> Value | None:
    """A weight or a temperature as the settings give it: one number, or the first and the last of a ramp."""
    if not isinstance(given, tuple):
        return given
    return given[0] if given[0] == given[1] else Ramp(*given)
