"""Sets of labels out of cells, and what splits of them must be fit for."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from potstill.data.examples import Examples, is_labelled, without_labels
from potstill.data.schema import Columns, LabelSetRule, load_splits
from potstill.data.tables import read_table
from potstill.errors import DataError

RULE = LabelSetRule()
COLUMNS = Columns("text", label="labels")
BLANK = {"columns": ["text", "labels"], "blank": ["labels"]}


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("joy", ("joy",)),
        (" love , joy ", ("joy", "love")),
        ("joy,joy", ("joy",)),
        ("", ()),
        ("  ", ()),
        ("[]", ()),
        ('["love", "joy"]', ("joy", "love")),
        ("[4, 27]", ("27", "4")),
        ('["a, b"]', ("a, b",)),
        ("[sic]", None),
        ("['joy']", None),
        ("[1.5]", None),
        ("[null]", None),
        ('[["joy"]]', None),
        ("joy,", None),
        ('["joy", " "]', None),
    ],
)
def test_a_cell(cell, labels):
    if labels is None:
        with pytest.raises(ValueError, match="labels"):
            RULE.name(cell)
    else:
        assert RULE.name(cell) == labels


def test_other_separators():
    assert LabelSetRule("|").name("a, b|c") == ("a, b", "c")
    assert LabelSetRule(";").name("a;b") == ("a", "b")


def write(folder: Path, kind: str, rows: list[tuple[str, list[str] | None]]) -> Path:
    path = folder / f"rows.{kind}"
    if kind == "csv":
        cells = [f'{text},"{",".join(labels)}"' for text, labels in rows if labels is not None]
        path.write_text("\n".join(["text,labels", *cells]) + "\n")
    elif kind == "jsonl":
        path.write_text("".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in rows))
    else:
        pq.write_table(pa.table({"text": [text for text, _ in rows], "labels": [labels for _, labels in rows]}), path)
    return path


ROWS = [("a", ["joy"]), ("b", []), ("c", ["love", "joy"]), ("d", ["love"]), ("e", []), ("f", ["joy"])]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_lists_of_any_file_and_a_row_without_a_label(tmp_path, kind):
    table = read_table([write(tmp_path, kind, ROWS)], **BLANK)
    splits = load_splits(table, columns=COLUMNS, labels=RULE, dev=table_of([("x", "joy"), ("y", "")]))
    assert splits.labels == ("joy", "love")
    assert splits.train.labels.dtype == np.int8
    assert splits.train.labels.tolist() == [[1, 0], [0, 0], [1, 1], [0, 1], [0, 0], [1, 0]]
    assert splits.facts["labels"]["train"] == {"joy": 3, "love": 2}
    assert splits.facts["without_label"] == {"train": 2, "dev": 1}
    assert splits.facts["set_aside_total"] == 0


def table_of(rows, path="memory"):
    from potstill.data.tables import Table

    columns = {"text": [text for text, _ in rows], "labels": [labels for _, labels in rows]}
    return Table.from_arrow(pa.table(columns), path)


def test_no_value_is_not_no_label(tmp_path):
    """JSON null and an absent key leave open what the labels are."""
    path = tmp_path / "rows.jsonl"
    lines = [{"text": "a", "labels": ["x"]}, {"text": "b", "labels": None}, {"text": "c"}, {"text": "d", "labels": []}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = read_table([path], **BLANK)
    assert [(row.row, row.reason) for row in table.bad] == [
        (2, "no value in column 'labels'"),
        (3, "no value in column 'labels'"),
    ]
    assert len(table) == 2
    assert len(read_table([path], columns=["text", "labels"])) == 2  # an empty list is no blank cell


def test_a_blank_text_is_bad_where_a_blank_label_is_not(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("text\tlabels\na\t\n\tjoy\nb\tjoy\n")
    assert [row.reason for row in read_table([path], **BLANK).bad] == ["column 'text' is empty"]
    assert [row.row for row in read_table([path], columns=["text", "labels"]).bad] == [1, 2]


def test_unlabelled_texts_are_not_texts_without_a_label():
    train, dev = table_of(ROWS_AS_TEXT), table_of([("x", "joy")])
    splits = load_splits(train, columns=COLUMNS, labels=RULE, dev=dev, unlabelled=table_of([("u", None), ("v", None)]))
    assert splits.unlabelled is not None
    assert splits.unlabelled.labels.tolist() == [[-1, -1], [-1, -1]]
    assert (
        is_labelled(np.concatenate([splits.train.labels, splits.unlabelled.labels])).tolist()
        == [True] * 6 + [False] * 2
    )


ROWS_AS_TEXT = [(text, ",".join(labels or [])) for text, labels in ROWS]


def refused(match, train=ROWS_AS_TEXT, dev=(("x", "joy"),), rule=RULE):
    with pytest.raises(DataError, match=match):
        load_splits(table_of(list(train)), columns=COLUMNS, labels=rule, dev=table_of(list(dev)))


def test_refusals():
    refused("dev has labels that train has not: 'hate'", dev=[("x", "joy,hate"), ("y", "hate")])
    refused("dev: none of its 2 usable rows has a label", dev=[("x", ""), ("y", "")])
    refused("train: one class only, 'joy'", train=[("a", "joy"), ("b", "")])
    refused(r"data.label_separator = \"\|\"", train=[("a", "joy|love"), ("b", "joy"), ("c", "")])
    refused("differ only in spelling", train=[("a", "joy,Joy"), ("b", "love")])
    refused("row 1 .*empty name", train=[("a", "joy,,love"), ("b", "love")])


def test_examples_come_back_from_disk_as_they_were(tmp_path):
    marks = np.array([[0, 1, 1], [-1, -1, -1], [0, 0, 0]], np.int8)
    examples = Examples(np.arange(3), ["a", "b", "c"], None, marks)
    examples.write(tmp_path / "x.arrow")
    back = Examples.read(tmp_path / "x.arrow")
    assert back.labels.dtype == np.int8
    assert np.array_equal(back.labels, marks)
    assert np.array_equal(back.select(np.array([2, 0])).labels, marks[[2, 0]])
    assert without_labels(marks, 2).tolist() == [[-1, -1, -1]] * 2
    none = Examples(np.arange(0), [], None, marks[:0])
    none.write(tmp_path / "none.arrow")
    assert Examples.read(tmp_path / "none.arrow").labels.shape == (0, 3)
