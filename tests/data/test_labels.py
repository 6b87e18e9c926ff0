"""Label names: rule, order, matching with a model."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.data.labels import LabelRule, match_labels, sort_labels
from potstill.errors import DataError, SettingsError


def test_names_as_they_stand():
    assert LabelRule().name(" a b ") == "a b"
    assert LabelRule().name("-1") == "-1"


@given(st.floats(-5, 5), st.floats(0, 2), st.floats(-3, 3))
def test_a_threshold_makes_two_classes(value, margin, threshold):
    name = LabelRule(threshold, margin).name(repr(value))
    if abs(value - threshold) < margin:
        assert name is None
    else:
        assert name == ("positive" if value >= threshold else "negative")


@pytest.mark.parametrize("cell", ["", "good", "nan", "inf", "1,5"])
def test_a_threshold_wants_numbers(cell):
    with pytest.raises(ValueError, match="is no number"):
        LabelRule(0.0).name(cell)


@pytest.mark.parametrize(("threshold", "margin"), [(float("nan"), 0.0), (0.0, -1.0), (None, 0.5), (0.0, float("nan"))])
def test_rules_that_cannot_be(threshold, margin):
    with pytest.raises(SettingsError):
        LabelRule(threshold, margin)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["10", "9", "-1", "0"], ("-1", "0", "9", "10")),
        (["1.5", "-0.5", "1"], ("-0.5", "1", "1.5")),
        (["b", "a", "b"], ("a", "b")),
        (["class 10", "class 9", "class"], ("class", "class 9", "class 10")),
        (["v2", "2", "x"], ("2", "v2", "x")),
    ],
)
def test_order(names, expected):
    assert sort_labels(names, len(names), "train") == expected
    assert sort_labels(reversed(names), len(names), "train") == expected


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no labels in 0 rows"),
        (["a", "a"], "one class only, 'a', in 2 rows; expected two classes or more"),
        (["1", "1.0", "0"], "'1' and '1.0' differ only in spelling"),
        (["Yes", "no", "yes"], "'Yes' and 'yes' differ only in spelling"),
        (
            [f"{i / 7:.4f}" for i in range(500)],
            "500 different numbers as labels; fix: learn them as scores",
        ),
        ([f"text {i}" for i in range(500)], "500 different labels in 500 rows"),
    ],
)
def test_columns_that_hold_no_classes(names, message):
    with pytest.raises(DataError, match=message):
        sort_labels(names, len(names), "train")


@given(st.permutations(["negative", "neutral", "positive"]), st.permutations(["NEUTRAL", "Negative", "positive"]))
def test_logits_take_the_order_of_the_data(data, model):
    logits = np.array([[len(name) * 10 + ord(name[0].lower()) for name in model]])
    expected = [len(name) * 10 + ord(name[0]) for name in data]
    assert logits[:, match_labels(data, model)].tolist() == [expected]


def test_exact_names_go_before_case():
    assert match_labels(["US", "us"], ["us", "US"]).tolist() == [1, 0]
    with pytest.raises(DataError):
        match_labels(["US", "us"], ["Us", "uS"])


@pytest.mark.parametrize(
    ("data", "model", "fix"),
    [
        (["0", "1"], ["LABEL_0", "LABEL_1"], "write the data's names into the model's id2label"),
        (["0", "1"], ["NEGATIVE", "POSITIVE"], "teacher.same_label_order = true"),
        (["a", "b"], ["a", "b", "c"], "teacher.trained = false"),
        (["a", "b", "c"], ["a", "b"], "give both the same labels"),
        (["a", "b"], ["b", "c"], "give both the same labels"),
        (["a", "b"], ["a", "a"], "give both the same labels"),
    ],
)
def test_names_that_do_not_match_are_refused_with_both_lists(data, model, fix):
    with pytest.raises(DataError, match=fix) as error:
        match_labels(data, model)
    assert all(repr(name) in str(error.value) for name in [*data, *model])


def test_order_is_assumed_only_where_it_is_said_and_nothing_matches():
    assert match_labels(["0", "1"], ["LABEL_0", "LABEL_1"], assume_order=True).tolist() == [0, 1]
    assert match_labels(["b", "a"], ["a", "b"], assume_order=True).tolist() == [1, 0]
    for data, model in [(["a", "b"], ["b", "c"]), (["0", "1"], ["LABEL_0", "LABEL_1", "LABEL_2"])]:
        with pytest.raises(DataError):
            match_labels(data, model, assume_order=True)


def test_long_lists_are_cut_short():
    with pytest.raises(DataError, match=r"'12', … \(150 in all\)|'11', … \(150 in all\)"):
        match_labels([str(i) for i in range(150)], [f"LABEL_{i}" for i in range(150)])
