"""A report's figures as the rows of the page's tables.

Knows the report's shape, no HTML: texts leave here as they are, and the template escapes them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from potstill.report.schema import (
    Baseline,
    Disagreement,
    Export,
    Metrics,
    ModelFacts,
    Percentiles,
    Report,
    Score,
    Spread,
    Student,
    Teacher,
)
from potstill.report.wording import baseline_name, export_name, model_name

__all__ = [
    "MATRIX_LABELS",
    "Candidate",
    "Confusion",
    "EnginePair",
    "Origin",
    "Recall",
    "SplitRow",
    "candidates",
    "cases",
    "confusions",
    "engine_pairs",
    "facts",
    "lengths",
    "metric_names",
    "origins",
    "recalls",
    "splits",
]

MATRIX_LABELS = 20
"""Up to this many labels a confusion matrix is drawn; beyond, only its largest cells are listed."""


@dataclass(frozen=True)
class Candidate:
    """One line of the comparison: teacher, student or a baseline. `kind` is teacher, student or other."""

    kind: str
    title: str
    note: str
    shape: str | None
    parameters: int | None
    bytes: int | None
    score: Score
    metrics: Metrics
    dev: Score | None


def candidates(report: Report) -> list[Candidate]:
    """Teacher, student, then the baselines as the report orders them."""
    primary = report.task.primary_metric
    rows = [_model("teacher", report.teacher, report.teacher.score, primary)] if report.teacher.score else []
    rows += _more_teachers(report, primary)
    if report.student:
        rows.append(_model("student", report.student, report.student.score, primary))
    for name, baseline in report.baselines.items():
        rows.append(
            Candidate(
                "other",
                baseline_name(name, scored=report.scored),
                _note(baseline),
                baseline.shape,
                baseline.parameters,
                baseline.bytes,
                baseline.score,
                baseline.metrics,
                (baseline.dev or {}).get(primary),
            )
        )
    return rows


def _more_teachers(report: Report, primary: str) -> list[Candidate]:
    """Of several teachers the others, and all of them together."""
    if report.teachers is None:
        return []
    more = enumerate(report.teachers.more, 2)
    rows = [_model("other", model, model.score, primary, f"Teacher {number}") for number, model in more]
    own, shares = report.teachers.together, ", ".join(f"{100 * share:.0f} %" for share in report.teachers.shares)
    note = f"shares: {shares}"
    dev = (own.dev or {}).get(primary)
    return [*rows, Candidate("other", "Teachers together", note, None, None, None, own.score, own.metrics, dev)]


def _model(kind: str, model: Teacher | ModelFacts, own: Score, primary: str, title: str | None = None) -> Candidate:
    start = f"start: {model.start}" if isinstance(model, Student) else model_name(model.source)
    dev = (model.dev or {}).get(primary)
    scores = model.scores if isinstance(model, Teacher) else None
    note = f"{scores.form if scores else model.model_type}, {start}"
    if scores:
        note += f", {own.n:,} texts"
    if isinstance(model, Student) and model.vocabulary is not None:
        note += f", {model.vocabulary.pieces:,} of {model.vocabulary.before:,} word pieces"
    return Candidate(
        kind,
        title or kind.capitalize(),
        note,
        model.shape,
        model.parameters,
        model.bytes,
        own,
        model.metrics,
        dev,
    )


def _note(baseline: Baseline) -> str:
    return ", ".join(part for part in (baseline.source and model_name(baseline.source), baseline.description) if part)


def metric_names(report: Report) -> list[str]:
    """The primary metric, then every other that the teacher or the student has."""
    named = [*report.teacher.metrics, *(report.student.metrics if report.student else ())]
    return list(dict.fromkeys([report.task.primary_metric, *named]))


@dataclass(frozen=True)
class EnginePair:
    """Teacher and student in one engine and precision, at one batch size; either may be missing."""

    title: str
    teacher: Percentiles | None
    student: Percentiles | None
    refused: bool


def engine_pairs(report: Report) -> dict[str, list[EnginePair]]:
    """For each batch size, a line for each engine and precision that was timed, in the report's order."""
    teacher = report.teacher_latency_ms or {}
    student = {f"{e.format}-{e.precision}": e for e in report.exports}
    timed = [*teacher.values(), *(e.latency_ms or {} for e in report.exports)]
    batches = sorted({batch for latency in timed for batch in latency}, key=int)
    pairs: dict[str, list[EnginePair]] = {}
    for batch in batches:
        for key in dict.fromkeys([*teacher, *student]):
            export = student.get(key)
            times = teacher.get(key, {}).get(batch), ((export and export.latency_ms) or {}).get(batch)
            if any(times):
                title = export_name(*key.split("-", 1))
                pairs.setdefault(batch, []).append(EnginePair(title, *times, bool(export and not export.accepted)))
    return pairs


def lengths(report: Report) -> tuple[list[tuple[str, str]], list[tuple[Export, list[Percentiles | None]]]]:
    """Columns (length, batch size) and, for each export timed by length, the times in them."""
    timed = [export for export in report.exports if export.latency_by_length]
    columns = sorted(
        {(length, batch) for e in timed for length, by in (e.latency_by_length or {}).items() for batch in by},
        key=lambda column: (int(column[0]), int(column[1])),
    )
    rows = [(e, [(e.latency_by_length or {}).get(length, {}).get(batch) for length, batch in columns]) for e in timed]
    return columns, rows


@dataclass(frozen=True)
class Confusion:
    """How often a gold label was answered with another one; `of` is the number of examples with the gold label."""

    gold: str
    answer: str
    teacher: int | None
    student: int | None
    of: int


def confusions(report: Report, limit: int = 25) -> list[Confusion]:
    """The commonest confusions of the student (or, without one, of the teacher), most frequent first."""
    labels, tables = report.task.labels, _tables(report)
    if not tables:
        return []
    deciding = "student" if "student" in tables else "teacher"
    cells = [
        (number, Confusion(labels[gold], labels[answer], *_cell(tables, gold, answer), sum(row)))
        for gold, row in enumerate(tables[deciding])
        for answer, number in enumerate(row)
        if gold != answer and number
    ]
    cells.sort(key=lambda cell: (-cell[0], cell[1].teacher or 0))
    return [cell for _, cell in cells[:limit]]


def _cell(tables: Mapping[str, list[list[int]]], gold: int, answer: int) -> tuple[int | None, int | None]:
    teacher, student = tables.get("teacher"), tables.get("student")
    return teacher[gold][answer] if teacher else None, student[gold][answer] if student else None


def _tables(report: Report) -> dict[str, list[list[int]]]:
    student = report.student.confusion if report.student else None
    return {name: table for name, table in (("teacher", report.teacher.confusion), ("student", student)) if table}


@dataclass(frozen=True)
class Recall:
    """The share of a label's examples that teacher and student get right."""

    label: str
    teacher: float
    student: float
    of: int


def recalls(report: Report, limit: int = 15) -> list[Recall]:
    """The labels on which the student loses most examples against the teacher, most first; no others."""
    tables = _tables(report)
    if len(tables) < 2:
        return []
    rows = enumerate(zip(tables["teacher"], tables["student"], strict=True))
    lost = [(old[label] - new[label], label, old, new) for label, (old, new) in rows if old[label] > new[label]]
    lost.sort(key=lambda entry: -entry[0])
    return [
        Recall(report.task.labels[label], old[label] / sum(old), new[label] / sum(new), sum(old))
        for _, label, old, new in lost[:limit]
        if sum(old) and sum(new)
    ]


def cases(report: Report) -> list[tuple[str, Disagreement]]:
    """The disagreements, each with who is right, or of two scores the nearer: teacher, student or neither."""

    def right(row: Disagreement) -> str:
        if isinstance(row.gold, float) and isinstance(row.teacher, float) and isinstance(row.student, float):
            gap = abs(row.teacher - row.gold) - abs(row.student - row.gold)
            return "teacher" if gap < 0 else "student" if gap > 0 else "neither"
        return "teacher" if row.teacher == row.gold else "student" if row.student == row.gold else "neither"

    return [(right(row), row) for row in report.disagreements]


@dataclass(frozen=True)
class SplitRow:
    """A split: its examples, gold answers, and texts longer than the model reads. None: not counted, or no scores."""

    name: str
    examples: int
    labels: Mapping[str, int]
    scores: Spread | None
    without_label: int
    truncated: int | None
    windowed: int | None


def splits(report: Report) -> list[SplitRow]:
    """Train, dev, test, then unlabelled and augmented texts where there are any."""
    data = report.data
    numbers = {"train": data.train, "dev": data.dev, "test": data.test}
    numbers |= {"unlabelled": data.unlabelled or None, "augmented": data.augmented or None}
    return [
        SplitRow(
            name,
            number,
            data.labels.get(name, {}),
            data.scores.get(name),
            data.without_label.get(name, 0),
            data.truncated.get(name),
            data.windowed.get(name),
        )
        for name, number in numbers.items()
        if number is not None
    ]


@dataclass(frozen=True)
class Origin:
    """A source and everything that was taken from it."""

    roles: list[str]
    source: str
    licence: str | None
    origin: str | None
    sha256: str | None


def origins(report: Report) -> list[Origin]:
    """The sources, those that are one file named once with all their roles."""
    found: dict[tuple[str, str | None, str | None, str | None], list[str]] = {}
    for part in report.data.sources:
        found.setdefault((part.source, part.licence, part.origin, part.sha256), []).append(part.role)
    return [Origin(roles, *key) for key, roles in found.items()]


def facts(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and values of a free-form part (environment) as words; nested mappings are joined into one line."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            text = ", ".join(f"{key} {item}" for key, item in value.items())
        elif isinstance(value, list):
            text = ", ".join(str(item) for item in value)
        else:
            text = "unknown" if value is None else str(value)
        if text:
            yield name.replace("_", " "), text
