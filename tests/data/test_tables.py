"""Files to tables, on files made here and on the real data sets beside the repository."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from potstill.data.tables import BadRow, Table, read_table, read_texts
from potstill.errors import DataError

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
real = pytest.mark.skipif(not SHARED.is_dir(), reason="the real data sets are not beside the repository")


def test_several_files_are_one_table(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nx,1\nonly\n")
    (tmp_path / "b.jsonl").write_text('{"label": 0, "text": "y", "more": "z"}\n')
    table = read_table([tmp_path / "a.csv", tmp_path / "b.jsonl"])
    assert table.columns == ("text", "label", "more")
    assert [table.column(name) for name in table.columns] == [["x", "y"], ["1", "0"], [None, "z"]]
    assert all(kind == pa.large_string() for kind in table.rows.schema.types)
    assert (table.row_numbers.tolist(), table.file_numbers.tolist()) == ([1, 1], [0, 1])
    assert table.sources == (str(tmp_path / "a.csv"), str(tmp_path / "b.jsonl"))
    assert table.bad == (BadRow(str(tmp_path / "a.csv"), 2, "1 fields, not 2"),)
    assert len(table) == 2


def test_row_numbers_pass_over_what_is_set_aside(tmp_path):
    (tmp_path / "a.tsv").write_text("text\n" + "".join(f"t{i}\n" if i % 3 else "\n" for i in range(200_000)))
    table = read_table([tmp_path / "a.tsv"], columns=["text"])
    assert table.row_numbers.dtype == np.int64
    assert [f"t{number - 1}" for number in table.row_numbers.tolist()] == table.column("text")
    assert [row.row for row in table.bad] == list(range(1, 200_001, 3))


def test_a_table_of_which_nothing_can_be_used(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"text\n\xff\n\xff\n")
    table = read_table([tmp_path / "a.csv"], columns=["text"])
    assert (len(table), table.columns, len(table.bad)) == (0, ("text",), 2)


def test_blank_lines_of_plain_text_are_gaps(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\n\ntwo\n")
    table = read_table([tmp_path / "a.txt"])
    assert (table.column("text"), table.bad, table.row_numbers.tolist()) == (["one", "two"], (), [1, 4])


def test_missing_column_and_no_files(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nx,1\n")
    with pytest.raises(
        DataError, match=r"a\.csv has no column 'labels'; expected one of 'text', 'label'; fix: did you mean 'label'"
    ):
        read_table([tmp_path / "a.csv"]).column("labels")
    with pytest.raises(DataError, match="no files"):
        read_table([])


def test_from_arrow():
    table = Table.from_arrow(pa.table({"text": ["a", None], "label": [1, 0]}), "hub:owner/name")
    assert (table.column("text"), table.column("label")) == (["a", None], ["1", "0"])
    assert (table.row_numbers.tolist(), table.file_numbers.tolist(), table.sources) == (
        [1, 2],
        [0, 0],
        ("hub:owner/name",),
    )


def test_read_texts(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbffirst\n\nsecond\ncaf\xe9\n")
    (tmp_path / "sub" / "c.jsonl").write_text('{"text": "third"}\n{"text": ""}\n')
    (tmp_path / "README.txt").write_text("not data\n")
    (tmp_path / "notes.md").write_text("not data\n")
    warned = []

    class Reporter:
        def progress(self, done, total, **values): ...

        def warn(self, message):
            warned.append(message)

    assert list(read_texts([tmp_path], report=Reporter())) == ["first", "second", "third"]
    assert [message.partition(": ")[2] for message in warned] == [
        "1 rows set aside (row 4: not UTF-8 at byte 4)",
        "1 rows set aside (row 2: column 'text' is empty)",
    ]
    (tmp_path / "d.tsv").write_text("body\tn\nfourth\t1\n")
    assert list(read_texts([tmp_path / "d.tsv"], column="body")) == ["fourth"]
    with pytest.raises(DataError, match="no column 'text'"):
        list(read_texts([tmp_path / "d.tsv"]))
    with pytest.raises(DataError, match="no text files"):
        list(read_texts([tmp_path / "sub" / ".." / "nothing"])) if (tmp_path / "nothing").mkdir() is None else None


@real
@pytest.mark.parametrize(
    ("name", "rows", "options"),
    [
        ("glue/SST-2/train.tsv", 67_349, {"columns": ["sentence", "label"]}),
        ("glue/SST-2/dev.tsv", 872, {"columns": ["sentence", "label"]}),
        ("glue/SST-2/test.tsv", 1_821, {"columns": ["sentence"]}),
        ("glue/MRPC/train.tsv", 3_668, {"columns": ["Quality", "#1 String", "#2 String"]}),
        ("glue/MRPC/dev.tsv", 408, {"columns": ["Quality", "#1 String", "#2 String"]}),
        ("glue/MRPC/test_labelled.tsv", 1_725, {"columns": ["Quality", "#1 String", "#2 String"]}),
        ("glue/QNLI/dev.tsv", 5_463, {"columns": ["question", "sentence", "label"]}),
        ("glue/MNLI/dev_matched.tsv", 9_815, {"columns": ["premise", "hypothesis", "gold_label"]}),
        ("glue/STS-B/sts-train.tsv", 5_749, {"columns": ["5", "6", "7"], "header": False}),
        ("glue/STS-B/sts-dev.tsv", 1_500, {"columns": ["5", "6", "7"], "header": False}),
        ("glue/STS-B/sts-test.tsv", 1_379, {"columns": ["5", "6", "7"], "header": False}),
        ("sick/SICK.txt", 9_927, {"format": "tsv", "columns": ["sentence_A", "sentence_B", "entailment_judgment"]}),
        ("goemotions/train.tsv", 43_410, {"header": False, "columns": ["1", "2"]}),
        ("goemotions/dev.tsv", 5_426, {"header": False, "columns": ["1", "2"]}),
        ("goemotions/test.tsv", 5_427, {"header": False, "columns": ["1", "2"]}),
    ],
)
def test_real_files_have_the_rows_they_are_said_to_have(name, rows, options):
    table = read_table([SHARED / name], **options)
    assert (len(table), table.bad) == (rows, ())
    assert table.row_numbers.tolist() == list(range(1, rows + 1))
    line = (
        (SHARED / name).read_text(encoding="utf-8-sig").split("\n")[options.get("header", True) + rows - 1].split("\t")
    )
    assert set(options["columns"]) <= set(table.columns)
    assert all(table.column(column)[-1] in line for column in table.columns)


@real
def test_a_json_file_that_is_no_table_says_what_it_lacks():
    with pytest.raises(DataError, match="holds no JSON array"):
        read_table([SHARED / "clinc150" / "data_small.json"], columns=["text"])


@real
def test_a_real_corpus():
    path = SHARED / "text" / "factbook.txt"
    expected = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    assert list(read_texts([path])) == expected
