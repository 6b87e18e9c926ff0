"""The shape of report.json, schema version 1: what must stand in it, of which type and in which range.

A report that does not fit is an error, because a misspelt key would otherwise just be missing from the page.
`checks.py` reads one, and says what must hold between fields. This module knows no model, no data and no HTML.

Scores are fractions (0.93, never 93), sizes are bytes, times in `latency_ms` are milliseconds, all other times seconds.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue, StringConstraints, field_validator

from potstill.report.measures import (
    STRICT,
    Abstention,
    Calibration,
    Count,
    Interval,
    LabelScores,
    Metrics,
    Positive,
    Probability,
    Score,
)

__all__ = [
    "Baseline",
    "CurvePoint",
    "Disagreement",
    "Export",
    "Interval",
    "Metrics",
    "ModelFacts",
    "Percentiles",
    "Report",
    "Score",
    "ScoresFacts",
    "Spread",
    "Student",
    "Teacher",
]

Digits = Annotated[str, StringConstraints(pattern=r"^[1-9]\d*$")]
Seconds = Annotated[float, Field(ge=0)]
Format = Literal["torch", "onnx", "openvino"]
Precision = Literal["float32", "bfloat16", "int8"]
Split = Literal["test", "dev"]
Speedup = dict[Digits, Positive]
Answer = str | float | list[str]


class _Part(BaseModel):
    model_config = STRICT


class Percentiles(_Part):
    """The median and the 95th percentile of a time, in milliseconds."""

    p50: Positive
    p95: Positive


Latency = dict[Digits, Percentiles]


class TaskFacts(_Part):
    """What is predicted: the label names, in the order of the logits, and the metric that decides.

    Where the answer is a score (`regression`), there are no labels.
    """

    kind: str
    labels: list[str]
    primary_metric: str
    pair: bool


class Source(_Part):
    """Where something came from; None means unknown. `role` is train, dev, test, unlabelled, teacher and so on."""

    role: str
    source: str
    sha256: str | None = None
    licence: str | None = None
    origin: str | None = None


class Overlap(_Part):
    """Texts that stood in two places (`between`), and how many were taken out."""

    between: Annotated[list[str], Field(min_length=2, max_length=2)]
    removed: Count
    examples: list[str] = []


class SetAside(_Part):
    """A row that could not be used; `row` counts from 1."""

    file: str
    row: Count
    reason: str


class Vocabulary(_Part):
    """A vocabulary that was cut: pieces, of how many, and how dev is read with it.

    `same` is the share of texts whose pieces did not change, `unknown` that of unknown tokens, `longer` the number of
    tokens against before.
    """

    pieces: Count
    before: Count
    same: Probability
    unknown: Probability
    longer: Positive


class Spread(_Part):
    """The lowest, the mean and the highest gold score of a split."""

    low: float
    mean: float
    high: float


class Data(_Part):
    """Numbers of examples; None for `test` means that there is no test split.

    `labels` counts, by split, the examples that have each label, `without_label` those that have none.
    """

    train: Count
    dev: Count
    test: Count | None = None
    unlabelled: Count = 0
    augmented: Count = 0
    sources: list[Source] = []
    overlaps: list[Overlap] = []
    set_aside: Annotated[list[SetAside], Field(max_length=50)] = []
    set_aside_total: Count = 0
    labels: dict[str, dict[str, Count]] = {}
    scores: dict[str, Spread] = {}
    without_label: dict[str, Count] = {}
    truncated: dict[str, Count] = {}
    windowed: dict[str, Count] = {}


class ModelFacts(_Part):
    """A model, its size and its scores on the split `judged_on`; `dev` holds the same metrics on dev.

    `confusion` has one row a gold label and one column a predicted label.
    """

    source: str
    licence: str | None = None
    origin: str | None = None
    shape: str
    model_type: str
    parameters: Annotated[int, Field(gt=0)]
    parameters_embedding: Count | None = None
    bytes: Annotated[int, Field(gt=0)]
    score: Score
    metrics: Metrics
    dev: Metrics | None = None
    confusion: list[list[Count]] | None = None
    by_label: dict[str, LabelScores] | None = None
    calibration: Calibration | None = None


class ScoresFacts(_Part):
    """A file of scores as teacher.

    `joined` says by role how its rows were matched with the data's, `covered` how many texts of a split have a score,
    `gold` which splits have labels of their own; `train` holds its metrics on the rows of train that have both.
    """

    form: Literal["probabilities", "logits", "labels"]
    rows: Count
    empty: Count = 0
    joined: dict[str, str]
    covered: dict[str, Count]
    gold: dict[str, bool]
    train: Metrics | None = None


class Teacher(_Part):
    """The teacher: a model, as in `ModelFacts`; or `scores`, which have no size, and a score only where labels tell."""

    source: str
    licence: str | None = None
    origin: str | None = None
    shape: str | None = None
    model_type: str | None = None
    parameters: Annotated[int, Field(gt=0)] | None = None
    parameters_embedding: Count | None = None
    bytes: Annotated[int, Field(gt=0)] | None = None
    score: Score | None = None
    metrics: Metrics = {}
    dev: Metrics | None = None
    confusion: list[list[Count]] | None = None
    by_label: dict[str, LabelScores] | None = None
    calibration: Calibration | None = None
    scores: ScoresFacts | None = None


class Student(ModelFacts):
    """The student; `start` says what its weights were before training, `vocabulary` is None where it is whole.

    `thresholds` are, for sets of labels, the probabilities from which on each label is given.
    """

    start: str
    vocabulary: Vocabulary | None = None
    abstention: Abstention | None = None
    thresholds: dict[str, Probability] | None = None


class Baseline(_Part):
    """Something to compare the student with; only its score is required."""

    score: Score
    metrics: Metrics = {}
    confusion: list[list[Count]] | None = None
    parameters: Count | None = None
    bytes: Count | None = None
    shape: str | None = None
    description: str | None = None
    source: str | None = None
    licence: str | None = None
    origin: str | None = None
    dev: Metrics | None = None


class Teachers(_Part):
    """Where several teachers' answers were averaged: all but the first, the share of each, and their joint scores.

    `shares` sum to 1, the first teacher's first. All else in a report that speaks of the teacher means the first.
    """

    shares: Annotated[list[Probability], Field(min_length=2)]
    more: Annotated[list[ModelFacts], Field(min_length=1)]
    together: Baseline


class Export(_Part):
    """The student in one format and precision; `score` is measured on dev.

    `speedup` (over the teacher in torch float32) = `engine_share` × `student_share`, for each batch size.
    """

    format: Format
    precision: Precision
    path: str | None = None
    bytes: Count | None = None
    score: Score | None = None
    test_score: Score | None = None
    accepted: bool
    reason: str | None = None
    max_abs_diff: Annotated[float, Field(ge=0)] | None = None
    latency_ms: Latency | None = None
    latency_by_length: dict[Digits, Latency] | None = None
    speedup: Speedup | None = None
    engine_share: Speedup | None = None
    student_share: Speedup | None = None


class BestExport(_Part):
    """Which export is the one to use."""

    format: Format
    precision: Precision


class Lengths(_Part):
    """Lengths of texts in tokens."""

    mean: float
    p50: float
    p95: float


class LatencyFacts(_Part):
    """How the times were taken; `repeats` is one number, or numbers by length and batch size."""

    threads: Count | None = None
    lengths: dict[str, Lengths] = {}
    repeats: Count | dict[str, dict[Digits, Count]] | None = None


class CurvePoint(_Part):
    """One line of a stage's training record; `dev` is the primary metric, None where it was not measured."""

    step: Count
    seconds: Seconds | None = None
    examples: Count | None = None
    terms: dict[str, float] = {}
    dev: float | None = None
    learning_rate: float | None = None


class Disagreement(_Part):
    """A text that teacher and student answer differently, with a label, with a set of labels or with a score.

    Each `_p` is the probability of the model's own answer; None for scores and sets of labels.
    """

    text: str
    pair: str | None = None
    gold: Answer
    teacher: Answer
    student: Answer
    teacher_p: Probability | None = None
    student_p: Probability | None = None


class Errors(_Part):
    """How many examples both, one or none of the two models got right."""

    both_right: Count
    teacher_only: Count
    student_only: Count
    both_wrong: Count


class Term(_Part):
    """One loss term of a stage; two numbers stand for the first step and the last."""

    name: str
    weight: float | tuple[float, float]
    temperature: float | tuple[float, float] | None = None


class RecipeStage(_Part):
    """One stage of training; `planned` is the number of steps that its recipe asks for."""

    name: str
    epochs: Seconds | None = None
    steps: Count | None = None
    planned: Count | None = None
    batch_size: Count | None = None
    learning_rate: float | None = None
    terms: list[Term] = []


class Recipe(_Part):
    """How the student was trained; `notes` say what of the method was left out, and why."""

    name: str
    mode: str | None = None
    mapping: str | None = None
    stages: list[RecipeStage] = []
    notes: list[str] = []


class Report(_Part):
    """All of report.json.

    Where `status` is "refused", the student and all that is derived from it may be absent; `refused_because` says why.
    """

    schema_version: Literal[1]
    potstill: str
    name: str
    created: str
    status: Literal["complete", "refused"]
    refused_because: str | None = None
    conclusion: str = ""
    task: TaskFacts
    data: Data
    judged_on: Split
    teacher: Teacher
    student: Student | None = None
    teachers: Teachers | None = None
    retention: Interval | None = None
    gap_closed: Interval | None = None
    size_ratio: Positive | None = None
    baselines: dict[str, Baseline] = {}
    exports: list[Export] = []
    best_export: BestExport | None = None
    teacher_latency_ms: dict[str, Latency] | None = None
    tokenisation_ms: Latency | None = None
    latency_facts: LatencyFacts | None = None
    curves: dict[str, list[CurvePoint]] = {}
    disagreements: Annotated[list[Disagreement], Field(max_length=50)] = []
    student_errors: Errors | None = None
    recipe: Recipe | None = None
    seconds: dict[str, Seconds] = {}
    environment: dict[str, JsonValue] = {}
    command: str | None = None
    settings: dict[str, JsonValue] = {}

    @property
    def scored(self) -> bool:
        """Whether the answer is a score, and not one label of several."""
        return self.task.kind == "regression"

    @property
    def multilabel(self) -> bool:
        """Whether the answer is a set of labels, and not one label of several."""
        return self.task.kind == "multilabel"

    @field_validator("created")
    @classmethod
    def _is_a_date(cls, created: str) -> str:
        datetime.fromisoformat(created)
        return created

    @property
    def against_teacher(self) -> bool:
        """Whether, for want of gold labels, the split that judges has the teacher's own answers as labels."""
        scores = self.teacher.scores
        return scores is not None and not scores.gold.get(self.judged_on, False)

    @property
    def best(self) -> Export | None:
        """The export that `best_export` names."""
        wanted = self.best_export
        return next(
            (e for e in self.exports if wanted and (e.format, e.precision) == (wanted.format, wanted.precision)), None
        )
