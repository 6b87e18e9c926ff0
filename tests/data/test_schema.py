"""Tables to splits: cells, budgets, cuts by hash, overlaps."""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.data.schema import (
    Columns,
    LabelRule,
    ScoreRule,
    SplitRule,
    evaluation_keys,
    examples_without,
    load_splits,
    texts_without,
)
from potstill.data.tables import BadRow, Table, read_table
from potstill.errors import DataError, SettingsError

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
real = pytest.mark.skipif(not SHARED.is_dir(), reason="the real data sets are not beside the repository")
TEXT = Columns("text")
PAIR = Columns("text", "pair")
DEV = [("dev one", "a"), ("dev two", "b")]


def table(rows, names=("text", "label"), bad=()):
    columns = {name: pa.array([row[i] for row in rows], pa.large_string()) for i, name in enumerate(names)}
    numbers = np.arange(1, len(rows) + 1)
    return Table(pa.table(columns), numbers, np.zeros(len(rows), np.int32), tuple(bad), ("file.csv",))


class Warned:
    def __init__(self):
        self.messages = []

    def warn(self, message):
        self.messages.append(message)


def test_splits_that_are_given():
    report = Warned()
    splits = load_splits(
        table([("one", "b"), ("two", "a"), ("three", " b ")]),
        dev=table([("four", "a")]),
        test=table([("five", "b")]),
        unlabelled=table([("six",), ("seven",)], ["sentence"]),
        columns=TEXT,
        report=report,
    )
    assert splits.labels == ("a", "b")
    assert (list(splits.train.texts), splits.train.labels.tolist()) == (["one", "two", "three"], [1, 0, 1])
    assert (list(splits.dev.texts), splits.dev.labels.tolist()) == (["four"], [0])
    assert (list(splits.test.texts), splits.test.labels.tolist()) == (["five"], [1])
    assert (list(splits.unlabelled.texts), splits.unlabelled.labels.tolist()) == (["six", "seven"], [-1, -1])
    ids = np.concatenate([part.example_id for part in (splits.train, splits.dev, splits.test, splits.unlabelled)])
    assert ids.dtype == np.int64
    assert len(set(ids.tolist())) == 7
    assert splits.facts == {
        "train": 3,
        "dev": 1,
        "test": 1,
        "unlabelled": 2,
        "overlaps": [],
        "set_aside": [],
        "set_aside_total": 0,
        "labels": {"train": {"a": 1, "b": 2}, "dev": {"a": 1, "b": 0}, "test": {"a": 0, "b": 1}},
    }
    assert splits.notes == {
        "cut_from_train": {},
        "left_out_near_threshold": {},
        "repeated_texts": 0,
        "conflicting_texts": 0,
        "conflicting_rows": 0,
    }
    assert report.messages == []


WORDS = st.text(alphabet="ab .", min_size=1, max_size=4).filter(lambda text: text.strip())


def key(text, pair=None):
    """Independent of the module: letters and digits, or, without any, what is no whitespace."""

    def side(value):
        return "".join(c for c in value.lower() if c.isalnum()) or "".join(value.split())

    return side(text) if pair is None else side(text) + "\x1f" + side(pair)


@given(
    train=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=12),
    dev=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4),
    test=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4),
    more=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6),
)
def test_overlaps_against_plain_loops(train, dev, test, more):
    anchors = [("zz one", "zz"), ("zz two", "zz")]
    parts = {
        "train": [*train, *anchors],
        "dev": [*dev, ("zz three", "zz")],
        "test": test,
        "unlabelled": more,
    }
    tables = {
        role: table([(*row, str(i % 2)) for i, row in enumerate(rows)], ["text", "pair", "label"])
        for role, rows in parts.items()
    }
    # The two anchors carry both labels, so that train never loses one.
    splits = load_splits(tables.pop("train"), columns=PAIR, **tables)
    kept = {"test": parts["test"]}
    counts = {}
    for role, others in [("dev", ["test"]), ("train", ["test", "dev"]), ("unlabelled", ["test", "dev"])]:
        rows = parts[role]
        for other in others:
            left = [row for row in rows if key(*row) not in {key(*taken) for taken in kept[other]}]
            counts[role, other] = len(rows) - len(left)
            rows = left
        kept[role] = rows
    for role, rows in kept.items():
        found = getattr(splits, role)
        assert list(zip(found.texts, found.pairs, strict=True)) == rows
        assert splits.facts[role] == len(rows)
    reported = {tuple(overlap["between"]): overlap["removed"] for overlap in splits.facts["overlaps"]}
    assert reported == {pair: count for pair, count in counts.items() if count}
    assert all(1 <= len(overlap["examples"]) <= 3 for overlap in splits.facts["overlaps"])


def test_an_overlap_is_warned_of_and_shown_cut_short():
    report = Warned()
    splits = load_splits(
        table([("It 's GOOD . " * 100, "a"), ("x", "b"), ("y", "a")]),
        dev=table([("It's good. " * 100, "b"), ("z", "a")]),
        columns=TEXT,
        report=report,
    )
    (overlap,) = splits.facts["overlaps"]
    assert overlap == {"between": ["train", "dev"], "removed": 1, "examples": [("It 's GOOD . " * 100)[:200] + "…"]}
    assert report.messages == ["1 texts of train also stand in dev: taken out of train"]


def expected_role(text, dev_share, test_share):
    place = int.from_bytes(hashlib.sha256(key(text).encode()).digest()[:8], "big") / 2**64
    return "test" if place < test_share else "dev" if place < test_share + dev_share else "train"


def test_missing_splits_are_cut_by_the_hash_of_the_text_alone():
    rows = [(f"text number {i}", str(i % 3)) for i in range(3000)]
    rule = SplitRule(dev_share=0.2, test_share=0.1)
    splits = load_splits(
        table([*rows, *((f"{text.upper()}!", label) for text, label in rows)]), columns=TEXT, rule=rule
    )
    for role in ("train", "dev", "test"):
        expected = [text for text, _ in rows if expected_role(text, 0.2, 0.1) == role]
        assert list(getattr(splits, role).texts) == [*expected, *(f"{text.upper()}!" for text in expected)]
    assert splits.facts["overlaps"] == []
    assert splits.notes["cut_from_train"] == {"test": splits.facts["test"], "dev": splits.facts["dev"]}
    assert splits.notes["repeated_texts"] == splits.facts["train"] // 2
    sizes = np.array([splits.facts[role] / 2 for role in ("train", "dev", "test")])
    assert np.abs(sizes - [2100, 600, 300]).max() < 5 * np.sqrt(3000 * 0.25)

    fewer = load_splits(table(rows[::7]), columns=TEXT, rule=rule)
    assert set(fewer.dev.texts) == set(splits.dev.texts) & {text for text, _ in rows[::7]}
    # A dev that is given takes no share, and what goes to test does not depend on it.
    given_dev = load_splits(table(rows), dev=table([("other", "1")]), columns=TEXT, rule=rule)
    assert list(given_dev.test.texts) == list(splits.test.texts)[: len(given_dev.test.texts)]
    assert given_dev.notes["cut_from_train"] == {"test": given_dev.facts["test"]}
    assert load_splits(table(rows), columns=TEXT).test is None


def test_fewer_rows_are_chosen_by_hash_once_dev_is_out():
    rows = [(f"text number {i}", str(i % 3)) for i in range(900)]
    every = load_splits(table(rows), columns=TEXT, rule=SplitRule(0.2))
    some = load_splits(table(rows), columns=TEXT, rule=SplitRule(0.2, rows=100))
    assert list(some.dev.texts) == list(every.dev.texts)
    hashes = {text: hashlib.sha256(key(text).encode()).digest() for text in every.train.texts}
    lowest = set(sorted(hashes, key=hashes.get)[:100])
    assert list(some.train.texts) == [text for text in every.train.texts if text in lowest]
    assert some.facts["train"] == sum(some.facts["labels"]["train"].values()) == 100
    other = load_splits(table(rows[::-1]), columns=TEXT, rule=SplitRule(0.2, rows=100))
    assert set(other.train.texts) == lowest, "the file's order plays no part"
    assert len(load_splits(table(rows), columns=TEXT, rule=SplitRule(0.2, rows=5000)).train) == len(every.train)


def test_repeats_and_conflicts_in_train_stay_and_are_counted():
    report = Warned()
    rows = [("Same.", "a"), ("same", "b"), ("same!", "a"), ("twice", "b"), ("twice", "b"), ("once", "a")]
    splits = load_splits(table(rows), dev=table(DEV), columns=TEXT, report=report)
    assert splits.facts["train"] == 6
    assert {name: splits.notes[name] for name in ("repeated_texts", "conflicting_texts", "conflicting_rows")} == {
        "repeated_texts": 3,
        "conflicting_texts": 1,
        "conflicting_rows": 3,
    }
    assert report.messages == ["1 texts of train have more than one label"]


def test_a_threshold_and_a_margin():
    rows = [("a", "2.5"), ("b", "-3"), ("c", "0.2"), ("d", "-0.49"), ("e", "0.5"), ("f", "-0.5")]
    splits = load_splits(table(rows), dev=table([("g", "1"), ("h", "0")]), columns=TEXT, labels=LabelRule(0.0, 0.5))
    assert splits.labels == ("negative", "positive")
    assert list(zip(splits.train.texts, splits.train.labels.tolist(), strict=True)) == [
        ("a", 1),
        ("b", 0),
        ("e", 1),
        ("f", 0),
    ]
    assert splits.train.example_id.tolist() == [0, 1, 4, 5]
    assert splits.notes["left_out_near_threshold"] == {"train": 2, "dev": 1}


def test_rows_set_aside_are_told_up_to_the_budget():
    bad = [BadRow("file.csv", 9, "over 1 MB")]
    rows = [("one", "a"), ("two", "b"), ("\u200b", "a"), (None, "a"), ("three", ""), ("four", None)]
    report = Warned()
    splits = load_splits(
        table(rows, bad=bad), dev=table(DEV), columns=TEXT, rule=SplitRule(bad_budget=5 / 7), report=report
    )
    assert splits.facts["set_aside"] == [
        {"file": "file.csv", "row": 9, "reason": "over 1 MB"},
        {"file": "file.csv", "row": 3, "reason": "empty text"},
        {"file": "file.csv", "row": 4, "reason": "empty text"},
        {"file": "file.csv", "row": 5, "reason": "no label"},
        {"file": "file.csv", "row": 6, "reason": "no label"},
    ]
    assert splits.facts["set_aside_total"] == 5
    assert report.messages == ["5 rows cannot be used and are set aside"]
    with pytest.raises(
        DataError,
        match=r"train: 5 of 7 rows cannot be used: file.csv row 9 \(over 1 MB\), .*row 4 .*, …; expected at most 70",
    ):
        load_splits(table(rows, bad=bad), dev=table(DEV), columns=TEXT, rule=SplitRule(bad_budget=0.7))


def test_a_file_in_another_encoding_is_told_how_to_mend_it():
    bad = [BadRow("file.csv", row, "not UTF-8 at byte 3") for row in range(2, 9)]
    with pytest.raises(DataError, match=r"fix: write the file in UTF-8 \(iconv .*data\.bad_rows"):
        load_splits(table(GOOD, bad=bad), dev=table(DEV), columns=TEXT)


def test_names_where_scores_are_asked_for():
    with pytest.raises(DataError, match=r"fix: if the labels are names, leave --task regression out; else mend them"):
        load_splits(table(GOOD), dev=table(DEV), columns=TEXT, labels=ScoreRule())


def test_no_more_than_50_rows_are_listed():
    rows = [("", "a")] * 80 + [("one", "a"), ("two", "b")]
    splits = load_splits(table(rows), dev=table(DEV), columns=TEXT, rule=SplitRule(bad_budget=1))
    assert (len(splits.facts["set_aside"]), splits.facts["set_aside_total"]) == (50, 80)


GOOD = [("one", "a"), ("two", "b"), ("three", "a")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train": [("one", "a"), ("two", "a")]}, "train: one class only, 'a'"),
        ({"train": []}, "train has no rows"),
        ({"train": [("", "a")] * 3}, "3 of 3 rows cannot be used"),
        (
            {"dev": [("x", "c"), ("y", "a")]},
            "dev has labels that train has not: 'c' among 'a', 'c'; expected those of train: 'a', 'b'",
        ),
        ({"test": [("x", "A")]}, "test has labels that train has not: 'A'"),
        ({"test": [("x", "-1"), ("y", "-1")]}, "every label is -1, so nothing can be judged"),
        ({"dev": [("one.", "a"), ("two.", "b"), ("three.", "a")]}, "train is empty"),
        ({"dev": [("two.", "b")]}, "train: one class only, 'a', once dev and test are out"),
        ({"dev": DEV, "test": DEV}, "dev is empty"),
    ],
)
def test_data_that_are_refused(arguments, message):
    rows = {"train": GOOD, "dev": DEV, **arguments}
    tables = {role: table(found) for role, found in rows.items()}
    with pytest.raises(DataError, match=message):
        load_splits(tables.pop("train"), columns=TEXT, **tables)


def test_columns_that_are_not_there():
    no_label = table([("x",)], ["text"])
    with pytest.raises(
        DataError, match=r"test .file.csv. has no column 'label', so nothing can be judged on it.*given as unlabelled"
    ):
        load_splits(table(GOOD), dev=table(DEV), test=no_label, columns=TEXT)
    with pytest.raises(DataError, match=r"dev .file.csv. has no column 'label'; expected one of 'text'"):
        load_splits(table(GOOD), dev=no_label, columns=TEXT)
    with pytest.raises(DataError, match="no column 'txt'; expected one of 'text', 'label'; fix: did you mean 'text'"):
        load_splits(table(GOOD), columns=Columns("txt"))
    with pytest.raises(DataError, match="no column 'pair'"):
        load_splits(table(GOOD), columns=PAIR)
    with pytest.raises(DataError, match="no column 'text'"):
        load_splits(table(GOOD), dev=table(DEV), unlabelled=table([("x", "y")], ["a", "b"]), columns=TEXT)


@pytest.mark.parametrize("shares", [(0, 0), (1, 0), (0.5, -0.1), (0.5, 1), (float("nan"), 0)])
def test_shares_that_cannot_be(shares):
    with pytest.raises(SettingsError):
        SplitRule(*shares)


def test_shares_that_leave_nothing():
    with pytest.raises(SettingsError, match="together below 1"):
        load_splits(table(GOOD), columns=TEXT, rule=SplitRule(0.5, 0.5))
    with pytest.raises(SettingsError):
        SplitRule(bad_budget=1.5)


def test_a_label_left_without_training_rows_is_warned_of():
    report = Warned()
    rows = [("only of c", "c"), *GOOD]
    splits = load_splits(table(rows), dev=table([("Only of C.", "c")]), columns=TEXT, report=report)
    assert splits.labels == ("a", "b", "c")
    assert report.messages[-1] == "no training row is left for 'c'"


def test_text_from_elsewhere_is_kept_apart():
    rows = [("q one", "a one", "0"), ("q two", "a two", "1")]
    dev = table([("Q three?", "A three.", "1")], ["text", "pair", "label"])
    splits = load_splits(table(rows, ["text", "pair", "label"]), dev=dev, columns=PAIR)
    keys = evaluation_keys(splits.dev, splits.test)
    assert list(texts_without(["q three", "a  THREE", "q one", "Q three? A three."], keys)) == [
        "q one",
        "Q three? A three.",
    ]
    assert list(examples_without(splits.train, keys).texts) == ["q one", "q two"]
    assert len(examples_without(splits.dev, keys)) == 0


@real
def test_sst2_has_five_train_rows_that_stand_in_dev():
    train, dev = (read_table([SHARED / f"glue/SST-2/{name}.tsv"]) for name in ("train", "dev"))
    splits = load_splits(train, dev=dev, columns=Columns("sentence"))
    (overlap,) = splits.facts["overlaps"]
    assert (overlap["between"], overlap["removed"]) == (["train", "dev"], 5)
    assert (splits.facts["train"], splits.facts["dev"]) == (67_349 - 5, 872)
    with pytest.raises(DataError, match="nothing can be judged on it"):
        test = read_table([SHARED / "glue/SST-2/test.tsv"])
        load_splits(dev, test=test, columns=Columns("sentence"))


@real
def test_mrpc_and_its_overlaps():
    tables = [read_table([SHARED / f"glue/MRPC/{name}.tsv"]) for name in ("train", "dev", "test_labelled")]
    splits = load_splits(tables[0], dev=tables[1], test=tables[2], columns=Columns("#1 String", "#2 String", "Quality"))
    assert splits.facts["test"] == 1_725
    keys = [{key(a, b) for a, b in zip(p.texts, p.pairs, strict=True)} for p in (splits.train, splits.dev, splits.test)]
    assert keys[0].isdisjoint(keys[1] | keys[2])
    assert keys[1].isdisjoint(keys[2])
    assert {tuple(o["between"]): o["removed"] for o in splits.facts["overlaps"]} == {
        ("dev", "test"): 1,
        ("train", "test"): 6,
    }


@real
@pytest.mark.parametrize(
    ("name", "columns", "labels"),
    [
        ("glue/QNLI/dev.tsv", Columns("question", "sentence"), ("entailment", "not_entailment")),
        (
            "glue/MNLI/dev_matched.tsv",
            Columns("premise", "hypothesis", "gold_label"),
            ("contradiction", "entailment", "neutral"),
        ),
    ],
)
def test_one_file_split_three_ways(name, columns, labels):
    whole = read_table([SHARED / name])
    splits = load_splits(whole, columns=columns, rule=SplitRule(0.1, 0.2))
    assert splits.labels == labels
    assert sum(splits.facts[role] for role in ("train", "dev", "test")) == len(whole)
    assert abs(splits.facts["test"] / len(whole) - 0.2) < 0.03
