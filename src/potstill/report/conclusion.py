"""What a report comes to, in plain sentences: score kept, how much smaller and faster, and what speaks against it.

Knows only the report: every sentence follows from figures that stand in it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from potstill.report.checks import validate
from potstill.report.schema import Baseline, Report, Student
from potstill.report.wording import (
    CONSTANTS,
    baseline_name,
    count,
    export_name,
    metric_name,
    score,
    score_range,
    share,
    share_range,
    times,
)

__all__ = ["CUT_SHORT", "MISJUDGED", "UNSTEADY", "WIDE", "cautions", "conclude", "headline"]

WIDE = 0.05
"""Retention's interval is called wide from this width on (as a fraction of the teacher's score)."""

UNSTEADY = 3.0
"""Timings are called unsteady from this ratio of their 95th percentile to their median on."""

CUT_SHORT = 0.1
"""A training is called cut short below this share of its recipe's steps."""

MISJUDGED = 0.05
"""Probabilities are called wrong where their calibration error is surely above this, as a fraction."""

_TAUGHT = {"teacher": "the teacher", "student": "the student", "general": "general distillation"}
_ALIKE = 1.02  # ratios below this are "as large", "as fast"
_SAME_COST = (
    1.1  # a pre-trained baseline is simpler than distilling while it has at most this many times the parameters
)


def conclude(report: Mapping[str, Any]) -> str:
    """The plain sentences for `report["conclusion"]`: the headline, then each caution.

    Args:
        report: A report.json value; its own `conclusion` is not read.

    Raises:
        DataError: It is no valid report.
    """
    parsed = validate(report)
    return " ".join([headline(parsed), *cautions(parsed)])


def headline(report: Report) -> str:
    """One sentence: the score kept with its interval, how much smaller, how much faster through which export."""
    refusal = _refusal(report)
    if report.student is None:
        return refusal
    metric, kept, judge = report.task.primary_metric, report.retention, report.teacher.score
    if kept is None or judge is None:
        return f"{refusal} {_without_retention(report, report.student)}".strip() if report.teacher.scores else refusal
    own, teacher = (score(one.value, metric) for one in (report.student.score, judge))
    parts = [
        f"The student keeps {share(kept.value)} of the teacher's {report.judged_on} {metric_name(metric)} "
        f"(95 % interval {share_range(kept.low, kept.high)}; {own} against {teacher})"
    ]
    if report.teacher.scores:
        parts.append(f"has {count(report.student.parameters)} parameters, its teacher being a file of scores")
    if report.size_ratio and report.teacher.parameters:
        sizes = f"{count(report.student.parameters)} parameters against {count(report.teacher.parameters)}"
        parts.append(f"is {_compared(report.size_ratio, 'smaller', 'larger', 'large')} ({sizes})")
    parts += _speed(report)
    sentence = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"{refusal} {sentence}.".strip()


def _without_retention(report: Report, student: Student) -> str:
    """The headline where what is kept of the teacher cannot be told: its scores do not say how good it is here."""
    metric, own, scores = report.task.primary_metric, student.score, report.teacher.scores
    interval = f"95 % interval {score_range(own.low, own.high, metric)}, {own.n:,} texts"
    size = f"{count(student.parameters)} parameters"
    if report.against_teacher:
        return (
            f"The student, of {size}, gives the teacher's own answer to {score(own.value, metric)} of "
            f"{report.judged_on} ({interval}); there are no gold labels, so that nothing is known of whether these "
            "answers are right."
        )
    covered = scores.covered.get(report.judged_on, 0) if scores else 0
    return (
        f"The student, of {size}, reaches {score(own.value, metric)} {report.judged_on} {metric_name(metric)} "
        f"({interval}); the scores that taught it answer {covered:,} of these texts, so that what it keeps of its "
        "teacher cannot be told."
    )


def _refusal(report: Report) -> str:
    if report.status == "complete":
        return ""
    reason = report.refused_because
    if reason is None and report.student is None:
        reason = "the teacher's own score is not good enough to distil from"
    if reason is None:
        reason = "no export was accepted" if report.exports and not report.best else "a gate was not passed"
    return f"Refused: {reason}" if reason.endswith(("?", "!", ".")) else f"Refused: {reason}."


def _compared(ratio: float, better: str, worse: str, alike: str) -> str:
    if 1 / _ALIKE < ratio < _ALIKE:
        return f"as {alike}"
    return f"{times(ratio)} times {better}" if ratio > 1 else f"{times(1 / ratio)} times {worse}"


def _speed(report: Report) -> list[str]:
    best = report.best
    if best is None or not best.speedup:
        return []
    batches = sorted(best.speedup, key=int)
    first = f"answers {_compared(best.speedup[batches[0]], 'faster', 'slower', 'fast')} at batch {batches[0]}"
    rest = [f"{_compared(best.speedup[batch], 'faster', 'slower', 'fast')} at batch {batch}" for batch in batches[1:]]
    return [f"{' and '.join([first, *rest])} through {export_name(best.format, best.precision)}"]


def cautions(report: Report) -> list[str]:
    """Sentences on what speaks against the student, or against its figures; an empty list where nothing does."""
    if report.student is None:
        return []
    return [*_cut_short(report), *_baselines(report, report.student), *_evidence(report)]


def _cut_short(report: Report) -> Iterator[str]:
    """A student that was hardly taught is not what distilling can do: this stands before every comparison."""
    stages = report.recipe.stages if report.recipe else []
    for stage in stages:
        cut = stage.planned and stage.steps is not None and stage.steps < CUT_SHORT * stage.planned
        if cut and (who := _TAUGHT.get(stage.name.split(":")[0])):
            yield (
                f"The time allowed left {who} {stage.steps:,} of the {stage.planned:,} steps of its recipe: "
                "with a longer budget, or on a quieter machine, expect more."
            )


def _baselines(report: Report, student: Student) -> Iterator[str]:
    metric = report.task.primary_metric
    for name, baseline in report.baselines.items():
        better = baseline.score.value >= student.score.value
        if not better and not _as_good(report, name, baseline, student):
            continue
        value, own = (score(one.score.value, metric) for one in (baseline, student))
        ranges = [score_range(one.score.low, one.score.high, metric) for one in (baseline, student)]
        if better:
            found = f"reaches {value} against the student's {own}"
        else:
            found = f"reaches {value} ({ranges[0]}), its interval overlapping the student's {own} ({ranges[1]})"
        yield f"{_subject(name, baseline, report.scored)} {found}: {_advice(name, baseline, student, better)}."


def _as_good(report: Report, name: str, baseline: Baseline, student: Student) -> bool:
    """Whether a baseline that scores less is as good for all the data say, and simpler."""
    if name == "hard_labels" and report.gap_closed and report.gap_closed.low > 0:
        return False  # the paired interval, which is sharper than two separate ones, tells them apart
    return baseline.score.high >= student.score.low and _simpler(name, baseline, student)


def _simpler(name: str, baseline: Baseline, student: Student) -> bool:
    if name == "small_pretrained":
        return baseline.parameters is not None and baseline.parameters <= _SAME_COST * student.parameters
    return True


def _subject(name: str, baseline: Baseline, scored: bool) -> str:
    if name == "hard_labels":
        return f"But the same student trained on the {'scores' if scored else 'labels'} alone"
    if name == "small_pretrained":
        relation = f" ({count(baseline.parameters)} parameters)" if baseline.parameters else ""
        return f"But the small pre-trained model{relation}, just fine-tuned,"
    if name == "majority":
        return "But always giving the commonest label"
    if name == "constant_set":
        return "But always giving the same set of labels"
    if name == "mean":
        return "But always giving the mean score"
    return f"But {baseline_name(name)}"


def _advice(name: str, baseline: Baseline, student: Student, better: bool) -> str:
    if name == "hard_labels":
        return "distilling gained nothing" if better else "what distilling gained is within the uncertainty"
    if name in CONSTANTS:
        return "the student is of no use" if better else "the student may have learnt next to nothing"
    if name == "small_pretrained" and not _simpler(name, baseline, student):
        return "where its size is no matter, it is the better choice"
    return (
        "simpler and no worse, it is the better choice"
        if better
        else "it is simpler, and may well be the better choice"
    )


def _evidence(report: Report) -> Iterator[str]:
    kept = report.retention
    if kept and kept.high - kept.low > WIDE and report.student:
        width = f"{100 * (kept.high - kept.low):.0f} points"
        yield f"The interval of what is kept is {width} wide: {report.student.score.n:,} examples say no more."
    if report.judged_on == "dev":
        yield "There is no test split: all is judged on dev, which also chose settings, so expect a little less."
    yield from _misjudged(report)
    yield from _poor_scores(report)
    if kept and kept.low > 1.0 and report.teacher.scores is not None:
        yield "The student scores more than its teacher: the scores are the weaker of the two."
    elif kept and kept.low > 1.0:
        yield (
            "The student scores more than its teacher, which has learnt too little: fine-tune the teacher longer, and "
            "the student may well gain too."
        )
    yield from _unsteady(report)
    if report.exports and report.best is None and report.status == "complete":
        yield "No export was accepted: use the student as it is, with transformers."


def _misjudged(report: Report) -> Iterator[str]:
    """Probabilities that cannot be read as chances, whatever was done about them."""
    calibration = report.student.calibration if report.student else None
    if calibration is None:
        return
    off = calibration.after.metrics["ece"]
    if off.low > MISJUDGED:
        tried = "" if calibration.reason else f", at its temperature of {calibration.temperature:.3g}"
        yield (
            f"The student's probabilities are {100 * off.value:.0f} points off on average{tried}: they rank its "
            "answers, and do not say how often these are right."
        )


def _poor_scores(report: Report) -> Iterator[str]:
    own, common, metric = report.teacher.score, report.baselines.get("majority"), report.task.primary_metric
    if report.teacher.scores and own and common and own.value <= common.score.value:
        yield (
            f"The scores that taught it reach {score(own.value, metric)}, always giving the commonest label "
            f"{score(common.score.value, metric)}: look at how they are joined, and at the names of the labels."
        )


def _unsteady(report: Report) -> Iterator[str]:
    """Medians of timings that scatter this much would come out otherwise in another hour."""
    best, teacher = report.best, (report.teacher_latency_ms or {}).get("torch-float32", {})
    if best is None or not (best.speedup or report.teacher.scores):
        return
    measured = [(size, times_) for one in (teacher, best.latency_ms) for size, times_ in (one or {}).items()]
    scatter = {size: max(t.p95 / t.p50 for s, t in measured if s == size and t.p50 > 0) for size, _ in measured}
    worst = max(scatter, key=lambda size: scatter[size], default=None)
    if worst is not None and scatter[worst] > UNSTEADY:
        rough = "speed-ups" if best.speedup else "times"
        yield (
            f"The timings were unsteady (at batch {worst} one run in twenty took {times(scatter[worst])} times the "
            f"median or more): take the {rough} as rough, and measure again on a quiet machine."
        )
