"""Rows of scores and rows of data: against a dict, then each way of joining, then what cannot be joined."""

import random
from pathlib import Path

import numpy as np
import pytest

from potstill.data.answers import find_layout, read_scores
from potstill.data.joining import join
from potstill.data.parts import Columns
from potstill.data.tables import read_table
from potstill.errors import DataError

TEXT, PAIR = Columns("text"), Columns("text", "other")


def joined(folder: Path, scores: str, data: str, columns: Columns = TEXT, role: str = "train"):
    (folder / "scores.csv").write_text(scores)
    (folder / "data.csv").write_text(data)
    table, rows = read_table([folder / "scores.csv"]), read_table([folder / "data.csv"])
    layout = find_layout(table, form=None, labels=("a", "b"), label="label", others=("id", columns.text, columns.pair))
    return join(read_scores(table, layout, ("a", "b")), table, rows, columns, role=role, layout=layout)


@pytest.mark.parametrize("key", ["id", "text", "pair"])
def test_against_a_dict(tmp_path: Path, key: str) -> None:
    draw = random.Random(key)
    words = [f"w{number}" for number in range(60)]
    scored = draw.sample(words, 40)
    answers = {word: round(draw.random(), 3) for word in scored}
    rows = [draw.choice(words) for _ in range(200)]
    head = {"id": "id", "text": "text", "pair": "text,other"}[key]
    cell = {"id": "{0}", "text": "{0}", "pair": "{0},the {0}"}[key]
    scores = "\n".join([f"{head},a,b", *(f"{cell.format(w)},{p},{1 - p:.3f}" for w, p in answers.items())])
    data = "\n".join([head if key != "id" else "id,text", *(cell.format(w) + (",x" * (key == "id")) for w in rows)])
    found = joined(tmp_path, scores, data, PAIR if key == "pair" else TEXT)
    assert found.by == ("id" if key == "id" else "text")
    oracle = {word: row for row, word in enumerate(answers)}
    assert found.rows.tolist() == [oracle.get(word, -1) for word in rows]


def test_row_numbers_as_predict_writes_them(tmp_path: Path) -> None:
    found = joined(tmp_path, "id,label\n3,a\n1,b\n", "text\nx\ny\nz\n")
    assert (found.by, found.rows.tolist()) == ("row number", [1, -1, 0])


def test_order_alone_where_nothing_else_is_there(tmp_path: Path) -> None:
    assert joined(tmp_path, "label\na\nb\n", "text\nx\ny\n").by == "row order"
    assert joined(tmp_path, "label\na\nb\n", "text\nx\ny\n", role="dev").by is None
    with pytest.raises(DataError, match=r"neither the column 'id' nor 'text', and there are 2 scores and 3 rows"):
        joined(tmp_path, "label\na\nb\n", "text\nx\ny\nz\n")


def test_order_is_not_trusted_where_there_is_more(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has the columns 'sentence' beside the scores, and neither 'id' nor 'text'"):
        joined(tmp_path, "sentence,label\nx,a\ny,b\n", "text\nx\ny\n")


def test_what_stands_twice_must_agree(tmp_path: Path) -> None:
    assert joined(tmp_path, "text,a,b\nx,0.25,0.75\nx,0.25,0.75\n", "text\nx\n").rows.tolist() == [0]
    with pytest.raises(DataError, match=r"scores.csv row 1 and .*scores.csv row 3 score the same text 'x' differently"):
        joined(tmp_path, "text,a,b\nx,0.25,0.75\ny,0,1\nx,0.3,0.7\n", "text\nx\n")
    with pytest.raises(DataError, match=r"row 1 and .*row 2 score the row 1 differently"):
        joined(tmp_path, "id,a,b\n1,0.25,0.75\n1,0.3,0.7\n", "text\nx\n")
    assert joined(tmp_path, "text,a,b\nx,0.25,0.75\nx,0.255,0.745\n", "text\nx\n").rows.tolist() == [0], "rounding"
    assert joined(tmp_path, "text,a,b\nx,,\nx,0.3,0.7\n", "text\nx\n").rows.tolist() == [1], "an empty row is no answer"


def test_texts_are_compared_to_the_character(tmp_path: Path) -> None:
    assert joined(tmp_path, "text,label\nA b,a\n", "text\nA b\na b\nA  b\n").rows.tolist() == [0, -1, -1]


def test_ids_that_may_be_row_numbers_or_the_datas_own_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="its ids may be row numbers, as potstill predict writes them"):
        joined(tmp_path, "id,label\n1,a\n2,b\n", "id,text\n0,x\n1,y\n2,z\n")
    # Where they are the same it does not matter; other columns show that the file was not written by predict.
    assert joined(tmp_path, "id,label\n1,a\n2,b\n", "id,text\n1,x\n2,y\n").by == "id"
    assert joined(tmp_path, "id,label,note\n1,a,-\n2,b,-\n", "id,text\n0,x\n1,y\n2,z\n").rows.tolist() == [-1, 0, 1]


def test_another_text_under_an_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"scores.csv row 2 and .*data.csv row 1 have the same id and another text"):
        joined(tmp_path, "id,text,label\n7,x,a\n8,y,b\n", "id,text\n8,x\n7,x\n")


@pytest.mark.parametrize("number", ["0", "4", "-1", "x", "1.0"])
def test_numbers_of_no_row_are_refused(tmp_path: Path, number: str) -> None:
    with pytest.raises(DataError, match=f"scores.csv row 2: the id '{number}'; .*1 to 3"):
        joined(tmp_path, f"id,label\n1,a\n{number},b\n", "text\nx\ny\nz\n")


def test_rows_that_are_not_scored_are_minus_one(tmp_path: Path) -> None:
    found = joined(tmp_path, "text,label\nx,a\n", "text\ny\nx\n")
    assert np.array_equal(found.rows, [-1, 0])
