"""A teacher's answers out of tables of every layout, against plain formulas; and what is no answer, by file and row."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.special

from potstill.data.answers import LEAST, find_layout, read_scores
from potstill.data.tables import read_table
from potstill.errors import DataError

LABELS = ("neg", "pos")


def table_of(folder: Path, text: str, name: str = "scores.csv"):
    (folder / name).write_text(text, encoding="utf-8")
    return read_table([folder / name])


def read(folder: Path, text: str, *, labels=LABELS, form=None, name: str = "scores.csv", label: str = "label"):
    table = table_of(folder, text, name)
    layout = find_layout(table, form=form, labels=labels, label=label, others=("id", "text", None))
    return read_scores(table, layout, labels)


def test_probabilities_become_logits_up_to_a_constant_at_every_temperature(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    logits = draw.normal(0, 3, (50, 3))
    rows = scipy.special.softmax(logits, axis=1)
    text = "\n".join(["a,b,c", *(",".join(repr(float(p)) for p in row) for row in rows)])
    found = read(tmp_path, text, labels=("a", "b", "c"))
    assert (found.form, found.labels, found.logits.dtype) == ("probabilities", ("a", "b", "c"), np.float32)
    for temperature in (1.0, 2.0, 10.0):
        ours = scipy.special.softmax(found.logits.astype(float) / temperature, axis=1)
        assert np.allclose(ours, scipy.special.softmax(logits / temperature, axis=1), atol=1e-5)
    assert found.given.all()
    assert (found.answers == logits.argmax(axis=1)).all()


def test_columns_may_stand_in_any_order_and_beside_others(tmp_path: Path) -> None:
    found = read(tmp_path, "pos,text,neg,cost\n0.8,a,0.2,7\n,b,,8\n1,c,0,9\n")
    assert np.allclose(np.exp(found.logits[[0, 2]]), [[0.2, 0.8], [LEAST, 1]])
    assert found.given.tolist() == [True, False, True]
    assert found.answers.tolist() == [1, -1, 1]


def test_rounded_probabilities_are_brought_to_a_sum_of_one(tmp_path: Path) -> None:
    found = read(tmp_path, "a,b,c\n0.333,0.333,0.333\n", labels=("a", "b", "c"))
    assert np.allclose(np.exp(found.logits), 1 / 3)


def test_objects_as_predict_writes_them(tmp_path: Path) -> None:
    lines = [json.dumps({"id": 1, "label": "pos", "probabilities": {"pos": 0.75, "neg": 0.25}})]
    lines.append(json.dumps({"id": 2, "label": None, "probabilities": None}))
    for labels in (LABELS, ()):
        found = read(tmp_path, "\n".join(lines), labels=labels, name="answers.jsonl")
        assert found.labels == LABELS
        assert np.allclose(np.exp(found.logits[0]), [0.25, 0.75])
        assert not found.given[1]


def test_logits_are_told_by_name_or_by_setting_and_stay_as_they_are(tmp_path: Path) -> None:
    nested = read(tmp_path, '{"logits": {"neg": -2.5, "pos": 31}}', name="answers.jsonl")
    named = read(tmp_path, "neg,pos\n-2.5,31\n", form="logits")
    assert nested.form == named.form == "logits"
    assert nested.logits.tolist() == named.logits.tolist() == [[-2.5, 31.0]]


def test_labels_with_and_without_confidence(tmp_path: Path) -> None:
    found = read(tmp_path, "text,label,score\na,x,0.7\nb,z,\nc,,\n", labels=("x", "y", "z"))
    assert found.form == "labels"
    assert np.allclose(np.exp(found.logits[0]), [0.7, 0.15, 0.15])
    assert np.allclose(np.exp(found.logits[1]), [LEAST, LEAST, 1.0])
    assert not found.given[2]
    assert read(tmp_path, "text,label\na,10\nb,9\n", labels=()).labels == ("9", "10")


def test_probabilities_come_before_a_label_beside_them(tmp_path: Path) -> None:
    assert read(tmp_path, "text,label,neg,pos\na,neg,0.1,0.9\n").answers.tolist() == [1]
    # Without gold labels, columns that are not all the labels' are something else.
    assert read(tmp_path, "text,label,cost,time\na,neg,1,2\nb,pos,1,2\n", labels=()).form == "labels"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("neg,pos\n0.5,0.5\n0.4,0.4\n", r"scores.csv row 2: neg 0.4, pos 0.4 add up to 0.8; .*within 0.01"),
        ("neg,pos\n0.5,0.5\n1.5,-0.5\n", r"scores.csv row 2: 1.5 for the label 'neg'; expected a probability"),
        ("neg,pos\n0.5,0.5\n50,50\n", r"row 2: 50 for the label 'neg'.*scores_form to \"logits\"; percentages"),
        ("neg,pos\nnan,0.5\n", r"row 1: 'nan' for the label 'neg'; expected a finite number"),
        ("neg,pos\n0.5,inf\n", r"row 1: 'inf' for the label 'pos'"),
        ("neg,pos\n0.5,\n", r"row 1: nothing for the label 'pos'"),
        ("neg,pos\n0.5,half\n", r"row 1: 'half' for the label 'pos'"),
        ("text,neg\na,1\n", r"no column for the label 'pos' beside \['neg'\]"),
        ("text,label\na,pos\nb,neutral\n", r"row 2: the label 'neutral'; expected one of the data's: 'neg', 'pos'"),
        ("text,label,score\na,pos,90\n", r"row 1: a confidence of '90'; .*divided by 100"),
        ("text,label,score\na,pos,0.3\n", r"row 1: a confidence of '0.3'; expected a number from 1/2"),
        ("text,label,score\na,pos,high\n", r"row 1: a confidence of 'high'"),
        ("text,answer\na,pos\n", r"no scores among the columns 'text', 'answer'"),
    ],
)
def test_what_is_no_answer_is_named(tmp_path: Path, text: str, match: str) -> None:
    with pytest.raises(DataError, match=match):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('{"probabilities": {"neg": 0.5, "pos": 0.5}}\n{"probabilities": {"neg": 1}}', r"row 2: .*look at 'pos'"),
        ('{"probabilities": {"neg": 0.5, "neutral": 0.5}}', r"'neutral'; expected those of the data: 'neg', 'pos'"),
        ('{"probabilities": [0.5, 0.5]}', r"row 1: probabilities '\[\"0.5\", \"0.5\"\]'; expected an object"),
        ('{"probabilities": null}', "is empty"),
        ('{"probabilities": {"neg": null, "pos": 1}}', r"row 1: nothing for the label 'neg'"),
        ('{"probabilities": {"neg": true, "pos": 0}}', r"row 1: True for the label 'neg'"),
    ],
)
def test_objects_that_are_no_answers_are_named(tmp_path: Path, text: str, match: str) -> None:
    with pytest.raises(DataError, match=match):
        read(tmp_path, text, name="answers.jsonl")
