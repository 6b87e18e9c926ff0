"""`potstill predict`, with the predictor replaced by one that counts characters."""

import json
import sys
import warnings
from dataclasses import dataclass, field

import pytest

from potstill.data import rows
from potstill.metrics import Threshold


@dataclass
class Answer:
    label: str | None
    probabilities: dict = field(default_factory=dict)
    truncated: bool = False
    reason: str | None = None
    abstained: bool = False

    def answer(self):
        return {"label": self.label, "probabilities": self.probabilities}


class Counter:
    """Answers how long a text is; texts over 50 characters are cut."""

    loaded = wished = threshold = None
    pair = False

    @classmethod
    def load(cls, folder, *, deployment=None, engine=None, precision=None, abstain_below=None, wanted_precision=None):
        cls.loaded, cls.wished = (str(folder), engine, precision), (abstain_below, wanted_precision)
        if engine == "onnxruntime":
            warnings.warn("onnxruntime is not used,\ntorch is", stacklevel=2)
        return cls()

    def predict_stream(self, rows):
        for row in rows:
            text = row if isinstance(row, str) else "|".join(row)
            if text.strip():
                share = min(len(text), 50) / 100
                yield Answer(text, {"long": share, "short": 1 - share}, truncated=len(text) > 50)
            else:
                yield Answer(None, reason="empty")


@pytest.fixture
def predictor(replace):
    replace("inference", Predictor=Counter, is_masked_lm=lambda _: False)
    return Counter


def answers(text):
    return [(one["id"], one["label"]) for one in map(json.loads, text.splitlines())]


def test_texts(run, predictor):
    ran = run("predict", "runs/a/student", "good film", "—bad")
    assert ran.code == 0
    assert json.loads(ran.out.splitlines()[0]) == {
        "id": 1,
        "label": "good film",
        "probabilities": {"long": 0.09, "short": 0.91},
    }
    assert answers(ran.out)[1] == (2, "—bad")
    assert predictor.loaded == ("runs/a/student", None, None)
    assert ran.err == ""


def test_engine_and_precision(run, predictor):
    run("predict", "d", "x", "--engine", "openvino", "--precision", "int8")
    assert predictor.loaded == ("d", "openvino", "int8")


def test_lines_of_standard_input(run, predictor):
    ran = run("predict", "d", stdin="﻿eins\r\nzwei\ttwo\nNA".encode())
    assert ran.code == 0
    assert answers(ran.out) == [(1, "eins"), (2, "zwei\ttwo"), (3, "NA")]


def test_bad_lines_are_named_and_the_rest_goes_on(run, predictor):
    ran = run("predict", "d", stdin=b"one\n\n\xff\xfe\xfa\nfour\n" + b"x" * 1_100_000 + b"\nsix\nse\0ven\n")
    assert ran.code == 0
    assert answers(ran.out) == [(1, "one"), (4, "four"), (6, "six")]
    assert ran.err.splitlines() == [
        "row 2: empty",
        "row 3: not UTF-8 at byte 0",
        "row 5: over 1 MB",
        "row 7: holds a NUL character",
        "3 rows answered, 4 not",
    ]


def test_no_row_that_can_be_answered(run, predictor):
    ran = run("predict", "d", " ")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "row 1: empty\n0 rows answered, 1 not\n"


def test_nothing_in(run, predictor):
    ran = run("predict", "d")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_rows_are_read_as_they_are_answered(run, predictor, tmp_path, monkeypatch):
    (tmp_path / "r.csv").write_text("text\n" + "x\n" * 1000)
    read, ahead = [], []

    def watched(path, **options):
        for number in range(1, 1001):
            read.append(number)
            yield rows.Row(number, {"text": "x"})

    def one_by_one(self, texts):
        for count, row in enumerate(texts, 1):
            ahead.append(len(read) - count)
            yield Answer(row)

    monkeypatch.setattr(rows, "iter_rows", watched)
    monkeypatch.setattr(predictor, "predict_stream", one_by_one)
    ran = run("predict", "d", "--input", "r.csv")
    assert len(ran.out.splitlines()) == 1000
    assert max(ahead) == 0


def test_a_person_who_types_is_answered_line_by_line(run, predictor, monkeypatch):
    calls = []
    stream = predictor.predict_stream
    monkeypatch.setattr(predictor, "predict_stream", lambda self, rows: calls.append(rows) or stream(self, rows))
    monkeypatch.setattr("potstill.cli.predict.sys", Typing())
    ran = run("predict", "d", stdin=b"one\ntwo\n")
    assert answers(ran.out) == [(1, "one"), (2, "two")]
    assert calls == [["one"], ["two"]]


class Typing:
    """`sys` with a terminal for standard input."""

    stderr = property(lambda self: sys.stderr)

    @property
    def stdin(self):
        class Terminal:
            buffer = sys.stdin.buffer
            isatty = staticmethod(lambda: True)

        return Terminal


def test_texts_that_are_cut_are_counted(run, predictor):
    ran = run("predict", "d", "short", "x" * 51)
    assert ran.code == 0
    assert ran.err == "texts longer than the model reads, and cut: 1\n"


def test_what_is_wished_of_withholding_is_passed_on(run, predictor):
    run("predict", "d", "x", "--abstain-below", "0.9")
    assert predictor.wished == (0.9, None)
    run("predict", "d", "x", "--wanted-precision", "0.95")
    assert predictor.wished == (None, 0.95)


def test_labels_that_are_withheld_are_counted(run, predictor, monkeypatch):
    monkeypatch.setattr(predictor, "threshold", Threshold(0.75, 0.5, 0.97, 0.95))
    monkeypatch.setattr(
        predictor, "predict_stream", lambda self, rows: (Answer(row, abstained=row == "doubtful") for row in rows)
    )
    ran = run("predict", "d", "clear", "doubtful", "--wanted-precision", "0.95")
    assert ran.code == 0
    assert ran.err.splitlines() == [
        "labels of a probability below 0.75 are withheld: on dev 50.0 % of the texts had a label, and 97.0 % of these "
        "labels were right",
        "labels withheld: 1 of 2",
    ]
    answer = json.loads(run("predict", "d", "doubtful", "--json").out)
    assert (answer["answered"], answer["abstained"]) == (1, 1)


def test_a_warning_is_one_line(run, predictor):
    ran = run("predict", "d", "x", "--engine", "onnxruntime")
    assert (ran.code, ran.err) == (0, "warning: onnxruntime is not used, torch is\n")


def test_a_file(run, predictor, tmp_path):
    (tmp_path / "r.csv").write_text('review,stars\n"good, ""really""",5\n,3\nbad,1\n')
    ran = run("predict", "d", "--input", "r.csv", "--text", "review")
    assert ran.code == 0
    assert answers(ran.out) == [(1, 'good, "really"'), (3, "bad")]
    assert "row 2: " in ran.err


def test_a_file_whose_name_says_nothing(run, predictor, tmp_path):
    (tmp_path / "r.data").write_text('text\tstars\n"open\t5\n')
    ran = run("predict", "d", "--input", "r.data", "--format", "tsv")
    assert answers(ran.out) == [(1, '"open')]
    assert run("predict", "d", "--input", "r.data").code == 2


def test_a_file_of_pairs(run, predictor, tmp_path, monkeypatch):
    monkeypatch.setattr(predictor, "pair", True)
    (tmp_path / "r.jsonl").write_text('{"a": "x", "b": "y"}\n')
    ran = run("predict", "d", "--input", "r.jsonl", "--text", "a", "--pair", "b")
    assert answers(ran.out) == [(1, "x|y")]


def test_a_file_without_a_header(run, predictor, tmp_path):
    (tmp_path / "r.tsv").write_text("1\tfirst\n2\tsecond text\n")
    ran = run("predict", "d", "--input", "r.tsv", "--no-header", "--text", "2")
    assert answers(ran.out) == [(1, "first"), (2, "second text")]
    assert "describe a file" in run("predict", "d", "x", "--no-header").err


def test_a_score_is_a_line_of_its_own(run, predictor, monkeypatch):
    monkeypatch.setattr(Answer, "answer", lambda self: {"score": len(self.label)})
    assert json.loads(run("predict", "d", "abc").out) == {"id": 1, "score": 3}


def test_a_second_text_only_where_the_model_reads_two(run, predictor, tmp_path, monkeypatch):
    (tmp_path / "r.jsonl").write_text('{"a": "x", "b": "y"}\n')
    ran = run("predict", "d", "--input", "r.jsonl", "--text", "a", "--pair", "b")
    assert (ran.code, ran.out) == (2, "")
    assert "for a model that reads single texts" in ran.err
    monkeypatch.setattr(predictor, "pair", True)
    for call in (["--input", "r.jsonl", "--text", "a"], ["x"]):
        ran = run("predict", "d", *call)
        assert (ran.code, ran.out) == (2, "")
        assert "the model reads pairs of texts" in ran.err


def test_a_file_without_the_column(run, predictor, tmp_path):
    (tmp_path / "r.csv").write_text("review\ngood\n")
    ran = run("predict", "d", "--input", "r.csv")
    assert (ran.code, ran.out) == (2, "")
    assert "has no column 'text'" in ran.err


def test_a_file_that_is_given_as_a_text(run, predictor, tmp_path):
    (tmp_path / "r.csv").write_text("text\ngood\n")
    ran = run("predict", "d", "r.csv")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: r.csv is a file, and would be read as a text; fix: write --input r.csv\n"
    assert run("predict", "d", "r.csv is a name").code == 0
    assert run("predict", "d", "long " * 2000).code == 0


def test_output(run, predictor, tmp_path):
    ran = run("predict", "d", "--output", "a.jsonl", stdin=b"x\n\ny\n")
    assert (ran.code, ran.out) == (0, "")
    assert answers((tmp_path / "a.jsonl").read_text()) == [(1, "x"), (3, "y")]


def test_output_is_whole_or_absent(run, predictor, tmp_path):
    (tmp_path / "r.csv").write_text("review\ngood\n")
    assert run("predict", "d", "--input", "r.csv", "--output", "a.jsonl").code == 2
    assert not (tmp_path / "a.jsonl").exists()


def test_json_is_one_document(run, predictor):
    ran = run("predict", "d", "--json", stdin=b"x\n\ny\n")
    answer = json.loads(ran.out)
    assert [(one["id"], one["label"]) for one in answer.pop("answers")] == [(1, "x"), (3, "y")]
    assert answer == {
        "schema_version": 1,
        "answered": 2,
        "truncated": 0,
        "abstained": 0,
        "failed": [{"row": 2, "reason": "empty"}],
        "failed_total": 1,
    }
    assert json.loads(run("predict", "d", "--json").out)["answers"] == []


def test_json_with_output_tells_where(run, predictor):
    ran = run("predict", "d", "x", "--json", "--output", "a.jsonl")
    assert json.loads(ran.out) == {
        "schema_version": 1,
        "path": "a.jsonl",
        "answered": 1,
        "truncated": 0,
        "abstained": 0,
        "failed": [],
        "failed_total": 0,
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["x", "--input", "f"], "both texts and --input"), (["x", "--text", "a"], "describe a file")],
)
def test_what_does_not_go_together(run, predictor, arguments, told):
    ran = run("predict", "d", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
