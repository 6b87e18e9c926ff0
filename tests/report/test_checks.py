import re

import pytest

from potstill.errors import DataError
from potstill.report.checks import validate


def place(report, path):
    """The container and the last key of a dotted path; numbers index lists."""
    *steps, last = path.split(".")
    for step in steps:
        report = report[int(step) if isinstance(report, list) else step]
    return report, int(last) if isinstance(report, list) else last


def test_samples_are_valid(any_report):
    assert validate(any_report).name == any_report["name"]


def test_a_report_without_conclusion_is_valid(full):
    del full["conclusion"]
    assert validate(full).conclusion == ""


def test_best_is_the_export_it_names(full):
    best = validate(full).best
    assert (best.format, best.precision, best.bytes) == ("openvino", "bfloat16", 57_522_870)


@pytest.mark.parametrize(
    "path",
    [
        "teacher",
        "teacher.score.n",
        "task.labels",
        "data.train",
        "judged_on",
        "status",
        "baselines.majority.score",
        "exports.0.accepted",
    ],
)
def test_missing_field_is_named(full, path):
    container, key = place(full, path)
    del container[key]
    with pytest.raises(DataError, match=re.escape(f"report: {path}: field required")):
        validate(full)


@pytest.mark.parametrize(
    "path", ["studnet", "student.scores", "exports.2.latency", "data.trian", "recipe.stages.0.batchsize"]
)
def test_unknown_field_is_named(full, path):
    container, key = place(full, path)
    container[key] = None
    with pytest.raises(DataError, match=re.escape(f"{path}: unknown key")):
        validate(full)


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("schema_version", 2, "schema_version: input should be 1"),
        ("created", "yesterday", "created: "),
        ("status", "done", "status: "),
        ("judged_on", "train", "judged_on: "),
        ("task.labels", ["only"], "task.labels: "),
        ("teacher.parameters", 0, "teacher.parameters: "),
        ("teacher.score.low", float("nan"), "teacher.score.low: "),
        ("student.score.value", "high", "student.score.value: "),
        ("exports.0.latency_ms.1.p50", 0, "exports.0.latency_ms.1.p50: "),
        ("exports.0.format", "tflite", "exports.0.format: "),
        ("disagreements.0.teacher_p", 93.0, "disagreements.0.teacher_p: "),
        ("seconds.joint", -1, "seconds.joint: "),
        ("data.test", -5, "data.test: "),
    ],
)
def test_wrong_value_is_named_and_shown(full, path, value, fault):
    container, key = place(full, path)
    container[key] = value
    with pytest.raises(DataError) as error:
        validate(full)
    assert fault in str(error.value)
    assert f"got {value!r}" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("task.labels", ["positive", "positive"], "task.labels: a name stands twice"),
        ("data.labels.train", {"neutral": 3}, "data.labels.train: 'neutral' is none of task.labels"),
        ("data.test", None, "judged_on: 'test', but data.test has no examples"),
        ("student", None, "student: absent, but status is 'complete'"),
        ("size_ratio", None, "size_ratio: absent"),
        ("size_ratio", 7.5, "size_ratio: 7.5, but teacher / student is 1.583 in parameters"),
        ("retention.value", 0.95, "retention: 0.95, but student / teacher is 0.98"),
        ("retention.low", 1.2, "retention: low 1.2 is above high"),
        ("task.primary_metric", "spearman", "teacher.metrics: the primary metric 'spearman' is absent"),
        ("student.metrics.accuracy.value", 0.9, "student.score: 0.8797, but student.metrics.accuracy is 0.9"),
        ("baselines.majority.score.value", 52.17, "baselines.majority.score: accuracy is 52.17, outside 0 to 1"),
        ("student.dev.matthews.value", -1.5, "student.dev: matthews is -1.5, outside -1 to 1"),
        ("teacher.metrics.f1.value", 0.2, "teacher.metrics: 0.2 lies far from its interval"),
        ("teacher.confusion", [[1, 2, 3]], "teacher.confusion: not 2 rows of 2"),
        ("student.confusion.0.0", 1, "student.confusion: holds 947 examples, the score 1612"),
        ("student_errors.both_right", 0, "student_errors: holds 246 examples, student.score 1612"),
        ("best_export.precision", "int4", "best_export.precision"),
        ("best_export", {"format": "onnx", "precision": "bfloat16"}, "best_export: onnx bfloat16 is not among exports"),
        ("best_export", {"format": "onnx", "precision": "int8"}, "best_export: onnx int8 was refused"),
        ("exports.3.reason", None, "exports.3 (onnx int8): refused without a reason"),
        ("exports.4.bytes", None, "exports.4 (openvino float32): accepted without score or bytes"),
        ("exports.1.precision", "float32", "exports.1 (torch float32): stands twice"),
        ("exports.5.engine_share.1", 9.0, "exports.5 (openvino bfloat16): speedup at batch 1 is"),
        ("disagreements.0.gold", "neutral", "disagreements.0.gold: 'neutral' is none of task.labels"),
        ("disagreements.0.student", "negative", "disagreements.0: teacher and student both say 'negative'"),
    ],
)
def test_contradiction_is_named(full, path, value, fault):
    container, key = place(full, path)
    container[key] = value
    with pytest.raises(DataError, match=re.escape(fault)):
        validate(full)


def test_all_faults_are_counted(full):
    full["student_errors"]["both_right"] = 0
    full["best_export"]["format"] = "onnx"
    with pytest.raises(DataError, match=r"\(and 1 more\)"):
        validate(full)


def test_biased_bootstrap_interval_passes(full):
    score = full["teacher"]["metrics"]["macro_f1"]
    score["low"], score["high"] = score["value"] + 0.001, score["value"] + 0.02
    assert validate(full).teacher.metrics["macro_f1"].value == score["value"]


def test_refused_run_may_have_no_student_but_not_half_of_one(full, refused):
    assert validate(refused).student is None
    del full["retention"]
    with pytest.raises(DataError, match="retention: absent beside a student"):
        validate(full | {"status": "refused"})


@pytest.mark.parametrize("value", [[], None, "report"])
def test_what_is_no_object_is_refused(value):
    with pytest.raises(DataError, match="report: the whole: "):
        validate(value)
