"""Gold scores: from cells to `Examples` and back from disk; rows that hold none are named."""

import numpy as np
import pyarrow as pa
import pytest

from potstill.data.examples import Examples, is_labelled, without_labels
from potstill.data.schema import Columns, ScoreRule, SplitRule, load_splits
from potstill.data.tables import Table, read_table
from potstill.errors import DataError

TEXT = Columns("text", label="score")
DEV = [("x", "0"), ("y", "5")]


def table(rows, source="train.tsv"):
    columns = {"text": [text for text, _ in rows], "score": [score for _, score in rows]}
    return Table.from_arrow(pa.table(columns), source)


@pytest.mark.parametrize(("cell", "value"), [("3.8", 3.8), (" -1 ", -1.0), ("1e3", 1000.0), ("5.000", 5.0)])
def test_a_cell_is_a_number(cell, value):
    assert ScoreRule().name(cell) == value


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("3,8", "score '3,8' is no number"),
        ("good", "is no number"),
        ("1_000", "is no number"),
        ("nan", "is not finite"),
        ("-inf", "is not finite"),
        ("1e400", "is not finite"),
        ("1e30", "is beyond"),
    ],
)
def test_a_cell_that_holds_none(cell, reason):
    with pytest.raises(ValueError, match=reason):
        ScoreRule().name(cell)


def test_splits_hold_scores_and_what_is_said_of_them(tmp_path):
    rows = [("a", "1.5"), ("b", "n/a"), ("c", "4"), ("x", "2"), ("d", "inf")]
    splits = load_splits(
        table(rows),
        dev=table(DEV),
        unlabelled=table([("u", "")]),
        columns=TEXT,
        labels=ScoreRule(),
        rule=SplitRule(bad_budget=0.5),
    )
    assert splits.labels == ()
    assert splits.train.labels.tolist() == [1.5, 4.0]
    assert splits.facts["set_aside"] == [
        {"file": "train.tsv", "row": 2, "reason": "score 'n/a' is no number"},
        {"file": "train.tsv", "row": 5, "reason": "score 'inf' is not finite"},
    ]
    assert splits.facts["overlaps"][0]["removed"] == 1  # x stands in dev
    assert splits.facts["scores"]["train"] == {"low": 1.5, "mean": 2.75, "high": 4.0}
    assert splits.facts["labels"] == {}
    assert np.isnan(splits.unlabelled.labels).all()
    for part in (splits.train, splits.unlabelled):
        part.write(tmp_path / "part.arrow")
        again = Examples.read(tmp_path / "part.arrow")
        assert again.labels.dtype == np.float64
        assert np.array_equal(again.labels, part.labels, equal_nan=True)


def test_one_text_with_two_scores_is_counted():
    rows = [("a", "1"), ("A ", "2"), ("b", "3"), ("b", "3")]
    notes = load_splits(table(rows), dev=table(DEV), columns=TEXT, labels=ScoreRule()).notes
    assert (notes["repeated_texts"], notes["conflicting_texts"], notes["conflicting_rows"]) == (2, 1, 2)


@pytest.mark.parametrize(
    ("train", "dev", "message"),
    [
        ([("a", "2"), ("b", "2.0")], DEV, r"train: every score is 2 \(2 usable rows\); expected scores that differ"),
        ([("a", "1"), ("b", "2")], [("x", "4"), ("y", "4")], "dev: every score is 4"),
        ([("a", "1"), ("b", "2"), ("x", "3")], [("x", "-1")], "every label is -1, so nothing can be judged"),
        ([("a", "1"), ("x", "2")], DEV, r"train: every score is 1 \(1 usable rows\)"),
        ([("a", "1"), ("b", "five")], DEV, r"train.tsv row 2 \(score 'five' is no number\)"),
    ],
)
def test_refused(train, dev, message):
    with pytest.raises(DataError, match=message):
        load_splits(table(train), dev=table(dev), columns=TEXT, labels=ScoreRule())


def test_columns_by_number_of_a_file_without_a_header(tmp_path):
    """As STS-B's own files: the score in column 5, quotes that mean nothing, further columns in some rows."""
    path = tmp_path / "sts.tsv"
    path.write_text('g\tf\t2012\t1\t5.000\tA "plane.\tAn air plane.\ng\tf\t2012\t2\t0.4\tone\ttwo\tmore\n')
    columns = Columns("6", "7", "5")
    read = read_table([path], columns=["6", "7", "5"], header=False)
    train = load_splits(
        read,
        dev=read_table([_dev(tmp_path)], columns=["6", "7", "5"], header=False),
        columns=columns,
        labels=ScoreRule(),
    ).train
    assert train.texts == ['A "plane.', "one"]
    assert train.pairs == ["An air plane.", "two"]
    assert train.labels.tolist() == [5.0, 0.4]


def _dev(folder):
    path = folder / "dev.tsv"
    path.write_text("g\tf\t2012\t1\t3.0\tthree\tdrei\ng\tf\t2012\t1\t1.0\tred\trot\n")
    return path


def test_one_notion_of_a_gold_answer():
    assert is_labelled(np.array([0, -1, 2])).tolist() == [True, False, True]
    assert is_labelled(np.array([0.0, np.nan, -1.0])).tolist() == [True, False, True]
    for labels in (np.array([0, 1]), np.array([0.5])):
        absent = without_labels(labels, 3)
        assert absent.dtype == labels.dtype
        assert not is_labelled(absent).any()
