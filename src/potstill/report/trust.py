"""How far answers can be trusted, as the page and the card show it: probabilities, withheld answers, single labels.

Knows the report's shape; pictures are `figures`'.
"""

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from potstill.report.figures import Series, line_chart, reliability_diagram
from potstill.report.measures import Calibration, LabelScores, Probabilities, Score, Threshold
from potstill.report.schema import Report
from potstill.report.tables import MATRIX_LABELS

__all__ = ["CalibrationRow", "LabelRow", "calibration_rows", "label_rows", "trust_parts", "wanted_rows"]


@dataclass(frozen=True)
class LabelRow:
    """A label, how many examples have it, and how well it is found; None where it was not measured.

    `threshold` is, of sets of labels, the probability from which on the student gives it.
    """

    label: str
    support: int
    teacher: LabelScores | None
    student: LabelScores | None
    threshold: float | None


@dataclass(frozen=True)
class CalibrationRow:
    """A model's probabilities, `kind` teacher or student, at a temperature."""

    kind: str
    temperature: float
    metrics: dict[str, Score]


def label_rows(report: Report) -> list[LabelRow]:
    """The labels in the order of the logits, of sets of labels the commonest first; none where none were measured."""
    teacher, student = report.teacher.by_label, report.student.by_label if report.student else None
    found = student or teacher or {}
    cuts = (report.student and report.student.thresholds) or {}
    rows = [
        LabelRow(label, one.support, (teacher or {}).get(label), (student or {}).get(label), cuts.get(label))
        for label, one in found.items()
    ]
    return sorted(rows, key=lambda row: -row.support) if report.multilabel else rows


def calibration_rows(report: Report) -> list[CalibrationRow]:
    """Teacher, then student: as they come, and at the temperature where one was fitted."""
    rows = []
    for kind, one in _calibrations(report):
        rows.append(CalibrationRow(kind, 1.0, one.before.metrics))
        if one.reason is None:
            rows.append(CalibrationRow(kind, one.temperature, one.after.metrics))
    return rows


def _calibrations(report: Report) -> list[tuple[str, Calibration]]:
    models = [("teacher", report.teacher), ("student", report.student)]
    return [(kind, model.calibration) for kind, model in models if model is not None and model.calibration is not None]


def wanted_rows(report: Report) -> list[tuple[float, Threshold | None]]:
    """Each precision that may be wanted, with the threshold that dev chooses for it; None where none is sure."""
    abstention = report.student.abstention if report.student else None
    if abstention is None:
        return []
    by_confidence = {one.confidence: one for one in abstention.thresholds}
    return [
        (one.precision, None if one.confidence is None else by_confidence[one.confidence]) for one in abstention.wanted
    ]


def trust_parts(report: Report) -> dict[str, Any]:
    """What the page's parts on trust are made of."""
    diagrams = []
    for kind, one in _calibrations(report):
        drawn = [("as it comes", one.before, 1)]
        drawn += [(f"at temperature {one.temperature:.3g}", one.after, 0)] if one.reason is None else []
        diagrams.append((kind, *_diagram(kind, drawn)))
    return {
        "label_rows": label_rows(report),
        "few_labels": len(report.task.labels) <= MATRIX_LABELS,
        "calibration_rows": calibration_rows(report),
        "unfitted": [(kind, one.reason) for kind, one in _calibrations(report) if one.reason is not None],
        "fitted": [(kind, one) for kind, one in _calibrations(report) if one.reason is None],
        "diagrams": diagrams,
        "wanted_rows": wanted_rows(report),
        "coverage": _coverage(report),
    }


def _diagram(kind: str, drawn: list[tuple[str, Probabilities, int]]) -> tuple[list[Series], Markup]:
    series, weights = [], []
    for name, found, style in drawn:
        points = [(b.confidence, b.accuracy) for b in found.bins if b.confidence is not None and b.accuracy is not None]
        series.append(Series(name, [x for x, _ in points], [y for _, y in points], style))
        total = sum(b.n for b in found.bins)
        weights.append([b.n / total for b in found.bins if b.n])
    return series, reliability_diagram(series, weights, title=f"Reliability of the {kind}'s probabilities")


def _coverage(report: Report) -> tuple[list[Series], Markup] | None:
    """How often a given answer is right, by the share of texts that have one."""
    abstention = report.student.abstention if report.student else None
    if abstention is None:
        return None
    rows = abstention.thresholds[::-1]
    series = [Series("dev", [one.coverage for one in rows], [one.precision for one in rows], 1)]
    met = [(one.judged_coverage.value, one.judged_precision.value) for one in rows if one.judged_precision]
    if report.judged_on != "dev" and met:
        series.insert(0, Series(report.judged_on, [x for x, _ in met], [y for _, y in met], 0))
    chart = line_chart(series, title="Precision by coverage", x_label="texts answered", percent=True, x_percent=True)
    return series, chart
