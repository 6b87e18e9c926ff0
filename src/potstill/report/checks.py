"""Reads a report, and says what must hold between its fields: each fault in words, with the place where it is.

It recomputes nothing that would need the data.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from potstill.errors import DataError
from potstill.report.measures import Calibration, LabelScores
from potstill.report.schema import Interval, Metrics, ModelFacts, Report, Score, Teacher

__all__ = ["contradictions", "validate"]

# Every metric that the report names lies in this range, so that a percentage in place of a fraction is seen.
_RANGES = {"matthews": (-1.0, 1.0), "pearson": (-1.0, 1.0), "spearman": (-1.0, 1.0), "rmse": (0.0, math.inf)}
_RANGES |= {"nll": (0.0, math.inf), "brier": (0.0, 2.0)}
_TOLERANCE = 0.02  # relative; figures are rounded here and there


def validate(report: Mapping[str, Any]) -> Report:
    """A report as typed parts.

    Args:
        report: What stands in report.json, as `json.loads` gives it. `conclusion` may be absent.

    Raises:
        DataError: A field is missing, unknown, of a wrong type or out of range, or two fields contradict each other.
            The first fault is named with its place, and how many more there are.
    """
    try:
        parsed = Report.model_validate(dict(report) if isinstance(report, Mapping) else report)
    except ValidationError as error:
        faults = [_described(dict(fault)) for fault in error.errors(include_url=False)]
    else:
        faults = contradictions(parsed)
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise DataError(
            f"report: {faults[0]}{more}",
            expected="report.json of schema version 1",
            fix="correct what wrote the report",
        )
    return parsed


def _described(fault: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in fault["loc"]) or "the whole"
    message = str(fault["msg"]).replace("Extra inputs are not permitted", "unknown key").replace("\n", " ")
    got = "" if fault["type"] in {"missing", "extra_forbidden"} else f", got {fault['input']!r:.60}"
    return f"{place}: {message[:1].lower()}{message[1:]}{got}"


def contradictions(report: Report) -> list[str]:
    """One line for each place where a report contradicts itself; an empty list where it does not."""
    checks = (_task, _complete, _scores, _intervals, _confusions, _trust, _ratios, _exports, _disagreements)
    return [fault for check in checks for fault in check(report)]


def _models(report: Report) -> Iterator[tuple[str, ModelFacts | Teacher]]:
    yield "teacher", report.teacher
    for number, model in enumerate(report.teachers.more if report.teachers else (), 2):
        yield f"teacher-{number}", model
    if report.student:
        yield "student", report.student


def _metrics(report: Report) -> Iterator[tuple[str, Metrics]]:
    primary = report.task.primary_metric
    for place, model in _models(report):
        if model.score is not None:
            yield f"{place}.score", {primary: model.score}
        yield f"{place}.metrics", model.metrics
        yield f"{place}.dev", model.dev or {}
        if model.calibration is not None:
            yield f"{place}.calibration.before", model.calibration.before.metrics
            yield f"{place}.calibration.after", model.calibration.after.metrics
        for label, one in (model.by_label or {}).items():
            yield f"{place}.by_label.{label}", {"precision": one.precision, "recall": one.recall, "f1": one.f1}
    together = {"together": report.teachers.together} if report.teachers else {}
    for name, baseline in {**report.baselines, **together}.items():
        yield f"baselines.{name}.score", {primary: baseline.score}
        yield f"baselines.{name}.metrics", baseline.metrics
        yield f"baselines.{name}.dev", baseline.dev or {}
    for index, export in enumerate(report.exports):
        if export.score:
            yield f"exports.{index}.score", {primary: export.score}
        if export.test_score:
            yield f"exports.{index}.test_score", {primary: export.test_score}


def _task(report: Report) -> Iterator[str]:
    labels = report.task.labels
    if report.scored and labels:
        yield f"task.labels: {len(labels)} labels of a regression, whose answer is a score"
    elif not report.scored and len(labels) < 2:
        yield f"task.labels: two or more are expected, got {labels!r:.80}"
    if len(set(labels)) != len(labels):
        yield f"task.labels: a name stands twice in {labels!r:.80}"
    for name in ((report.student and report.student.thresholds) or {}).keys() - set(labels):
        yield f"student.thresholds: {name!r} is none of task.labels"
    for split, counts in report.data.labels.items():
        for name in counts.keys() - set(labels):
            yield f"data.labels.{split}: {name!r} is none of task.labels"
    if report.judged_on == "test" and not report.data.test:
        yield "judged_on: 'test', but data.test has no examples"


def _complete(report: Report) -> Iterator[str]:
    teacher = report.teacher
    if teacher.scores is None:
        for field in ("shape", "model_type", "parameters", "bytes", "score"):
            if getattr(teacher, field) is None:
                yield f"teacher.{field}: absent, and the teacher is no file of scores"
    elif report.size_ratio is not None or teacher.parameters is not None:
        yield "size_ratio: scores have no size to compare with"
    if report.status == "complete":
        needed = ("student", "retention", "size_ratio") if teacher.scores is None else ("student",)
        for field in needed:
            if getattr(report, field) is None:
                yield f"{field}: absent, but status is 'complete'"
        if report.retention is not None and teacher.score is None:
            yield "retention: present without a score of the teacher"
    elif report.student and report.retention is None:
        yield "retention: absent beside a student"


def _scores(report: Report) -> Iterator[str]:
    primary = report.task.primary_metric
    for place, model in _models(report):
        if model.score is None:
            continue
        if primary not in model.metrics:
            yield f"{place}.metrics: the primary metric {primary!r} is absent"
        elif abs(model.metrics[primary].value - model.score.value) > 1e-6:
            yield f"{place}.score: {model.score.value}, but {place}.metrics.{primary} is {model.metrics[primary].value}"
    for place, metrics in _metrics(report):
        for name, score in metrics.items():
            low, high = _RANGES.get(name, (0.0, 1.0))
            if not low <= score.value <= high:
                yield f"{place}: {name} is {score.value}, outside {low:g} to {high:g}"


def _intervals(report: Report) -> Iterator[str]:
    intervals: list[tuple[str, Interval | Score]] = [
        (p, s) for p, metrics in _metrics(report) for s in metrics.values()
    ]
    intervals += [("retention", report.retention)] if report.retention else []
    intervals += [("gap_closed", report.gap_closed)] if report.gap_closed else []
    for place, interval in intervals:
        # A bootstrap of macro F1 over rare labels is biased, so that its interval may just miss the value.
        slack = (interval.high - interval.low) + 1e-6
        if interval.low > interval.high:
            yield f"{place}: low {interval.low} is above high {interval.high}"
        elif not interval.low - slack <= interval.value <= interval.high + slack:
            yield f"{place}: {interval.value} lies far from its interval {interval.low} to {interval.high}"


def _confusions(report: Report) -> Iterator[str]:
    size = len(report.task.labels)
    found = [(place, model.confusion, model.score.n) for place, model in _models(report) if model.score is not None]
    found += [(f"baselines.{name}", b.confusion, b.score.n) for name, b in report.baselines.items()]
    for place, confusion, examples in found:
        if confusion is None:
            continue
        if len(confusion) != size or any(len(row) != size for row in confusion):
            yield f"{place}.confusion: not {size} rows of {size}, as task.labels asks"
        elif sum(map(sum, confusion)) != examples:
            yield f"{place}.confusion: holds {sum(map(sum, confusion))} examples, the score {examples}"
    if report.student_errors and report.student:
        total = sum(report.student_errors.model_dump().values())
        if total != report.student.score.n:
            yield f"student_errors: holds {total} examples, student.score {report.student.score.n}"


def _trust(report: Report) -> Iterator[str]:
    for place, model in _models(report):
        if model.score is None:
            continue
        if model.by_label is not None:
            yield from _by_label(f"{place}.by_label", model.by_label, report, model.score.n)
        if model.calibration is not None:
            yield from _calibration(f"{place}.calibration", model.calibration, model.score.n)
    abstention = report.student.abstention if report.student else None
    if abstention is None:
        return
    found = [one.confidence for one in abstention.thresholds]
    if found != sorted(set(found)):
        yield "student.abstention.thresholds: not by rising confidence"
    for one in abstention.wanted:
        if one.confidence is not None and one.confidence not in found:
            yield f"student.abstention.wanted: {one.confidence} is the confidence of no threshold"


def _by_label(place: str, found: Mapping[str, LabelScores], report: Report, n: int) -> Iterator[str]:
    if list(found) != report.task.labels:
        yield f"{place}: not the labels of task.labels, in their order"
    for kind in ("support", "predicted"):
        counts = [getattr(one, kind) for one in found.values()]
        if report.multilabel:  # a text has any number of labels
            if max(counts, default=0) > n:
                yield f"{place}: {kind} of a label holds {max(counts)} examples, the score {n}"
        elif (total := sum(counts)) != n:
            yield f"{place}: {kind} holds {total} examples, the score {n}"


def _calibration(place: str, found: Calibration, n: int) -> Iterator[str]:
    if found.reason is not None and found.temperature != 1:
        yield f"{place}.temperature: {found.temperature}, but reason says that none was fitted"
    for name, one in (("before", found.before), ("after", found.after)):
        total = sum(each.n for each in one.bins)
        if total != n:
            yield f"{place}.{name}: holds {total} examples, the score {n}"
        if absent := {"ece", "nll", "brier"} - one.metrics.keys():
            yield f"{place}.{name}.metrics: {min(absent)} is absent"


def _ratios(report: Report) -> Iterator[str]:
    student, teacher = report.student, report.teacher
    if student is None:
        return
    if report.retention and teacher.score and teacher.score.value > 0:
        expected = student.score.value / teacher.score.value
        if abs(report.retention.value - expected) > _TOLERANCE:
            yield f"retention: {report.retention.value}, but student / teacher is {expected:.4f}"
    if report.size_ratio and teacher.parameters and teacher.bytes:
        ratios = (teacher.parameters / student.parameters, teacher.bytes / student.bytes)
        if all(abs(report.size_ratio / ratio - 1) > _TOLERANCE for ratio in ratios):
            found = f"{ratios[0]:.3f} in parameters, {ratios[1]:.3f} in bytes"
            yield f"size_ratio: {report.size_ratio}, but teacher / student is {found}"


def _exports(report: Report) -> Iterator[str]:
    seen = set()
    for index, export in enumerate(report.exports):
        place = f"exports.{index} ({export.format} {export.precision})"
        if (export.format, export.precision) in seen:
            yield f"{place}: stands twice"
        seen.add((export.format, export.precision))
        if export.accepted and (export.score is None or export.bytes is None):
            yield f"{place}: accepted without score or bytes"
        if not export.accepted and not export.reason:
            yield f"{place}: refused without a reason"
        for batch, speedup in (export.speedup or {}).items():
            shares = [(share or {}).get(batch) for share in (export.engine_share, export.student_share)]
            product = shares[0] * shares[1] if shares[0] and shares[1] else speedup
            if abs(product / speedup - 1) > _TOLERANCE:
                yield f"{place}: speedup at batch {batch} is {speedup}, its shares give {product:.4g}"
    if report.best_export and report.best is None:
        yield f"best_export: {report.best_export.format} {report.best_export.precision} is not among exports"
    elif report.best and not report.best.accepted:
        yield f"best_export: {report.best.format} {report.best.precision} was refused"


def _disagreements(report: Report) -> Iterator[str]:
    labels = set(report.task.labels)
    for index, row in enumerate(report.disagreements):
        for field in ("gold", "teacher", "student"):
            answer = getattr(row, field)
            named = answer if isinstance(answer, list) else [answer]
            if isinstance(answer, list) != report.multilabel:
                yield f"disagreements.{index}.{field}: {answer!r:.40} is no answer of the task {report.task.kind}"
            elif report.scored and isinstance(answer, str):
                yield f"disagreements.{index}.{field}: {answer!r:.40} is no score"
            elif not report.scored and (unknown := [name for name in named if name not in labels]):
                yield f"disagreements.{index}.{field}: {unknown[0]!r:.40} is none of task.labels"
        if row.teacher == row.student:
            yield f"disagreements.{index}: teacher and student both say {row.teacher!r:.40}"
