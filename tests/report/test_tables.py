import numpy as np

from potstill.report import tables
from potstill.report.checks import validate


def test_candidates_come_teacher_first_and_hide_folders(full):
    full["teacher"]["source"] = "/home/somebody/teacher"
    rows = tables.candidates(validate(full))
    assert [row.kind for row in rows] == ["teacher", "student", "other", "other", "other", "other"]
    assert rows[0].note == "bert, teacher"
    assert rows[1].note == "bert, start: shrunk"
    assert rows[3].note == "pypi:minilm"


def test_metrics_begin_with_the_primary_one(full):
    full["task"]["primary_metric"] = "f1"
    for model in ("teacher", "student"):
        full[model]["score"] = full[model]["metrics"]["f1"]
    assert tables.metric_names(validate(full)) == ["f1", "accuracy", "macro_f1", "matthews"]


def test_engine_pairs_join_teacher_and_student(full):
    del full["teacher_latency_ms"]["onnx-int8"]
    pairs = tables.engine_pairs(validate(full))
    assert list(pairs) == ["1", "32"]
    by_title = {pair.title: pair for pair in pairs["1"]}
    assert len(by_title) == 7
    assert by_title["PyTorch float32"].teacher.p50 == 8.94
    assert by_title["OpenVINO bfloat16"].student.p50 == 0.39
    assert by_title["ONNX int8"].teacher is None
    assert by_title["ONNX int8"].refused


def test_lengths_are_ordered_as_numbers(full):
    columns, rows = tables.lengths(validate(full))
    assert columns == [("16", "1"), ("16", "32"), ("128", "1"), ("128", "32")]
    assert [time.p50 for time in rows[5][1]] == [
        t["p50"] for length in ("16", "128") for t in full["exports"][5]["latency_by_length"][length].values()
    ]


def test_confusions_and_recalls_against_numpy(many):
    report = validate(many)
    teacher, student = (np.array(many[model]["confusion"]) for model in ("teacher", "student"))
    wrong = student - np.diag(np.diag(student))
    found = tables.confusions(report, limit=10_000)
    assert len(found) == np.count_nonzero(wrong)
    assert sum(row.student for row in found) == wrong.sum()
    assert [row.student for row in found] == sorted((row.student for row in found), reverse=True)
    index = {name: place for place, name in enumerate(many["task"]["labels"])}
    assert all(row.teacher == teacher[index[row.gold], index[row.answer]] for row in found)
    lost = np.diag(teacher) - np.diag(student)
    recalls = tables.recalls(report, limit=1_000)
    assert len(recalls) == (lost > 0).sum()
    first = index[recalls[0].label]
    assert lost[first] == lost.max()
    assert recalls[0].student == student[first, first] / student[first].sum()
    assert len(tables.confusions(report)) == 25


def test_confusions_of_a_teacher_alone(refused):
    found = tables.confusions(validate(refused))
    assert [(row.gold, row.answer, row.teacher, row.student) for row in found] == [
        ("negative", "positive", 93, None),
        ("positive", "negative", 81, None),
    ]
    assert tables.recalls(validate(refused)) == []


def test_cases_say_who_is_right(full):
    kinds = [right for right, _ in tables.cases(validate(full))]
    assert kinds == ["teacher", "teacher", "student", "teacher", "student", "teacher", "teacher", "student"]


def test_splits_leave_out_what_is_absent(full, three):
    assert [row.name for row in tables.splits(validate(three))] == ["train", "dev"]
    rows = {row.name: row for row in tables.splits(validate(full))}
    assert list(rows) == ["train", "dev", "test", "unlabelled", "augmented"]
    assert (rows["train"].truncated, rows["augmented"].truncated) == (3, None)


def test_origins_name_a_source_once(full):
    assert [part.roles for part in tables.origins(validate(full))] == [
        ["train", "dev", "test"],
        ["unlabelled"],
        ["teacher"],
    ]


def test_facts_flatten(full):
    found = dict(tables.facts(full["environment"] | {"gpu": None, "empty": []}))
    assert found["cpu flags"] == "avx2, avx512f, avx512_vnni, amx_bf16, amx_int8"
    assert found["versions"] == "onnxruntime 1.22.0, openvino 2026.4, numpy 2.3.1"
    assert found["gpu"] == "unknown"
    assert "empty" not in found
