"""Scores against scikit-learn's on random and on adversarial labels."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as oracle

from potstill.errors import DataError
from potstill.metrics import (
    Metric,
    beats_majority,
    classification_metrics,
    confusion_matrix,
    disagreement,
    majority_share,
)


def reference(labels, predictions, n_labels, positive):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of a single class
        expected = {
            "accuracy": oracle.accuracy_score(labels, predictions),
            "macro_f1": oracle.f1_score(labels, predictions, average="macro", zero_division=0),
            "matthews": oracle.matthews_corrcoef(labels, predictions),
        }
        if positive is not None:
            per_class = oracle.f1_score(labels, predictions, labels=range(n_labels), average=None, zero_division=0)
            expected["f1"] = per_class[positive]
    return expected


@st.composite
def answers(draw):
    n_labels = draw(st.integers(2, 6))
    n = draw(st.integers(1, 40))
    classes = st.lists(st.integers(0, draw(st.integers(0, n_labels - 1))), min_size=n, max_size=n)
    labels = draw(classes)
    kind = draw(st.sampled_from(["free", "constant", "gold", "shifted"]))
    if kind == "free":
        predictions = draw(classes)
    elif kind == "constant":
        predictions = [draw(st.integers(0, n_labels - 1))] * n
    else:
        predictions = [(label + (kind == "shifted")) % n_labels for label in labels]
    return np.array(labels), np.array(predictions), n_labels


@settings(max_examples=80, deadline=None)
@given(answers(), st.booleans())
def test_equals_scikit_learn(case, name_positive):
    labels, predictions, n_labels = case
    positive = n_labels - 1 if name_positive else None
    got = classification_metrics(labels, predictions, n_labels, positive)
    expected = reference(labels, predictions, n_labels, 1 if n_labels == 2 else positive)
    assert got == pytest.approx(expected, abs=1e-12)
    matrix = confusion_matrix(labels, predictions, n_labels)
    assert matrix.dtype == np.int64
    assert np.array_equal(matrix, oracle.confusion_matrix(labels, predictions, labels=range(n_labels)))


@pytest.mark.parametrize(
    ("labels", "predictions"),
    [
        ([0, 0, 1, 1], [1, 1, 1, 1]),  # constant predictions
        ([0, 0, 0, 0], [0, 0, 0, 0]),  # one class, all right
        ([0, 0, 0, 0], [1, 1, 1, 1]),  # never right
        ([1, 1, 1, 0], [0, 0, 0, 1]),  # always the other one
        ([0, 1, 2, 0], [0, 2, 1, 0]),  # two classes never right
        ([0, 1, 1, 0], [3, 1, 1, 0]),  # a predicted class without gold labels
    ],
)
def test_equals_scikit_learn_at_the_edges(labels, predictions):
    n_labels = max(labels + predictions) + 1 if max(labels + predictions) > 1 else 2
    got = classification_metrics(np.array(labels), np.array(predictions), n_labels)
    expected = reference(labels, predictions, n_labels, 1 if n_labels == 2 else None)
    assert got == pytest.approx(expected, abs=1e-12)


def test_f1_of_the_binary_task_is_the_positive_class():
    labels, predictions = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 0])
    assert classification_metrics(labels, predictions, 2)["f1"] == oracle.f1_score(labels, predictions)
    assert classification_metrics(labels, predictions, 2, positive=0)["f1"] == oracle.f1_score(
        labels, predictions, pos_label=0
    )
    assert "f1" not in classification_metrics(labels, predictions, 3)


def test_scores_of_many_examples_stay_exact():
    labels = np.arange(600_000) % 3
    predictions = np.where(np.arange(600_000) % 10 == 0, (labels + 1) % 3, labels)
    assert classification_metrics(labels, predictions, 3) == pytest.approx(
        reference(labels, predictions, 3, None), rel=1e-12
    )


@pytest.mark.parametrize(
    ("labels", "predictions", "n_labels", "positive", "named"),
    [
        ([0, -1], [0, 1], 2, None, "labels with the value -1"),
        ([0, 1], [0, 2], 2, None, "predictions with the value 2"),
        ([0, 1, 1], [0, 1], 2, None, "3 labels, 2 predictions"),
        ([0.0, 1.0], [0, 1], 2, None, "float64"),
        ([], [], 2, None, "labels of shape"),
        ([0, 1], [0, 1], 2, 2, "positive class 2"),
    ],
)
def test_what_cannot_be_judged_is_named(labels, predictions, n_labels, positive, named):
    with pytest.raises(DataError, match=named):
        classification_metrics(np.array(labels), np.array(predictions), n_labels, positive)


def test_majority_share_and_the_bound_on_it():
    labels = np.array([0] * 60 + [1] * 40)
    assert majority_share(labels) == 0.6
    assert majority_share(np.array([5, 5, 2])) == pytest.approx(2 / 3)
    assert beats_majority(Metric(0.9, 0.62, 0.95, 100), labels)
    assert not beats_majority(Metric(0.9, 0.6199, 0.95, 100), labels)
    assert beats_majority(Metric(0.9, 0.6199, 0.95, 100), labels, margin=0.01)


def test_metric_as_dict_is_read_back():
    metric = Metric(0.5, 0.25, 0.75, 8)
    assert metric.as_dict() == {"value": 0.5, "low": 0.25, "high": 0.75, "n": 8}
    assert Metric(**metric.as_dict()) == metric


def test_disagreement_counts_and_orders():
    labels = np.array([0, 1, 0, 1, 0])
    teacher = np.array([[7, 1], [3, 5], [2, 6], [6, 2], [8, 0]]) / 8
    student = np.array([[6, 2], [7, 1], [5, 3], [5, 3], [6, 2]]) / 8
    result = disagreement(labels, teacher, student)
    assert result.counts() == {"both_right": 2, "teacher_only": 1, "student_only": 1, "both_wrong": 1}
    assert result.distance == pytest.approx([1 / 8, 4 / 8, 3 / 8, 1 / 8, 2 / 8])
    assert result.order.tolist() == [1, 2, 4, 0, 3]
    assert result.differing.tolist() == [1, 2]


def test_disagreement_over_many_classes_is_total_variation():
    rng = np.random.default_rng(0)
    teacher, student = rng.dirichlet(np.ones(5), (2, 200))
    labels = rng.integers(0, 5, 200)
    result = disagreement(labels, teacher, student)
    # Total variation is also the largest difference in the probability of any set of classes.
    best_set = np.maximum(teacher - student, 0).sum(1)
    assert result.distance == pytest.approx(best_set)
    assert (np.diff(result.distance[result.order]) <= 0).all()
    assert sum(result.counts().values()) == 200


def test_disagreement_refuses_other_shapes():
    with pytest.raises(DataError, match="shape"):
        disagreement(np.array([0, 1]), np.ones((2, 2)), np.ones((2, 3)))
    with pytest.raises(DataError, match="3 labels"):
        disagreement(np.array([0, 1, 1]), np.ones((2, 2)), np.ones((2, 2)))
