"""What a run works on, resolved before any work: sources, the teacher's config, the student's shape, the recipe."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from potstill.config import Settings
from potstill.data.schema import Columns
from potstill.data.sources import Source, resolve_data, resolve_model
from potstill.errors import ModelError, SourceError
from potstill.models.student import Shape
from potstill.models.teacher import read_config
from potstill.progress import Reporter
from potstill.recipes import RECIPES, Recipe, with_overrides
from potstill.storage import digest_file

__all__ = ["Job", "model_facts", "prepare_job"]

STARTS = ("shrunk", "layers", "random")


@dataclass(frozen=True)
class Job:
    """A checked run.

    Attributes:
        settings: As resolved.
        data: Role (train, dev, test) → source; absent roles are cut from train or do not exist.
        unlabelled, texts: Sources of unlabelled rows and of plain text.
        teacher, baseline, start: Sources of models; `start` only where the student starts from another model.
        config: The teacher's.
        columns: Where text, pair and label stand.
        shape: The student's.
        assistants: Shapes between teacher and student, largest first.
        recipe: With the settings' overrides.
    """

    settings: Settings
    data: dict[str, Source]
    unlabelled: tuple[Source, ...]
    texts: tuple[Source, ...]
    teacher: Source
    baseline: Source | None
    start: Source | None
    config: PretrainedConfig
    columns: Columns
    shape: Shape
    assistants: tuple[Shape, ...]
    recipe: Recipe

    @property
    def way(self) -> str:
        """How the student starts: shrunk, layers, random, or `model`."""
        return "model" if self.start is not None else self.settings.student.start

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
    data = {"train": resolve_data(settings.data.train, report=report)}
    for role in ("dev", "test"):
        if (name := getattr(settings.data, role)) is not None:
            data[role] = resolve_data(name, split="test" if role == "test" else "train", report=report)
    teacher = resolve_model(settings.teacher.source, report=report)
    config = read_config(teacher.paths[0])
    start = None
    if settings.student.start not in STARTS:
        start = resolve_model(settings.student.start, report=report)
        read_config(start.paths[0])
    baseline = None
    if settings.evaluate.baseline is not None:
        baseline = resolve_model(settings.evaluate.baseline, report=report)
        read_config(baseline.paths[0])
    for name in (settings.augment.vectors, settings.augment.stop_words):
        if name is not None and not Path(name).is_file():
            raise SourceError(f"there is no file {name}", fix="give the path of an existing file")
    shape = Shape.parse(settings.student.shape, teacher_heads=int(config.num_attention_heads))
    recipe = _recipe(settings)
    way = "model" if start is not None else settings.student.start
    _check_shape(shape, Shape.of(config), way, recipe)
    return Job(
        settings=settings,
        data=data,
        unlabelled=tuple(resolve_data(name, report=report) for name in settings.data.unlabelled),
        texts=tuple(resolve_data(name, report=report) for name in settings.general.texts),
        teacher=teacher,
        baseline=baseline,
        start=start,
        config=config,
        columns=_columns(settings, data["train"]),
        shape=shape,
        assistants=_assistants(settings, Shape.of(config), shape, way, recipe),
        recipe=recipe,
    )


def _columns(settings: Settings, train: Source) -> Columns:
    declared = train.columns
    return Columns(
        text=settings.data.text or declared.get("text", "text"),
        pair=settings.data.pair,
        label=settings.data.label or declared.get("label", "label"),
    )


def _recipe(settings: Settings) -> Recipe:
    chosen = settings.distill
    return with_overrides(
        RECIPES[chosen.mode],
        weights=chosen.weights.model_dump(),
        epochs=chosen.epochs,
        batch_size=chosen.batch_size,
        learning_rate=chosen.learning_rate,
    )


def _check_shape(shape: Shape, teacher: Shape, way: str, recipe: Recipe) -> None:
    if way == "model":
        return
    names = [term.name for phase in recipe.phases for term in phase.terms if term.weight]
    inner = "attention" in names or "hidden" in names
    if shape.layers > teacher.layers and inner:
        raise ModelError(
            f"a student of {shape.layers} layers under a teacher of {teacher.layers}",
            expected=f"{teacher.layers} layers or fewer",
            fix="choose a smaller student.shape",
        )
    if "attention" in names and shape.heads != teacher.heads:
        fitting = f"student.shape {shape.layers}x{shape.hidden // teacher.heads * teacher.heads}"
        raise ModelError(
            f"a student {shape} with {shape.heads} heads under a teacher with {teacher.heads}: "
            "the attention loss compares head with head",
            fix=f"choose {fitting}, or set distill.weights.attention to 0",
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
            f"a student {shape} shrunk from {teacher}", expected="no dimension larger", fix="choose a smaller shape"
        )


def _assistants(settings: Settings, teacher: Shape, student: Shape, way: str, recipe: Recipe) -> tuple[Shape, ...]:
    chosen = settings.student.assistants
    if chosen == "none":
        return ()
    if chosen != "auto":
        return tuple(Shape.parse(text, teacher_heads=teacher.heads) for text in chosen)
    # Half the teacher's layers at full width, where both depth and width shrink by half or more: cutting both at once
    # from a deep teacher loses most of what it knows (benchmarks/results/sst2.md).
    far = teacher.layers >= 2 * student.layers and teacher.hidden >= 2 * student.hidden and teacher.layers >= 8
    if recipe.name == "potstill" and way == "shrunk" and far:
        return (Shape(teacher.layers // 2, teacher.hidden, teacher.ffn, teacher.heads),)
    return ()


def model_facts(source: Source) -> dict[str, Any]:
    """What a report says of where a model came from."""
    return {"source": source.name, "origin": source.origin, "licence": source.licence, "sha256": source.sha256}
