"""Sets of labels: what a task of them loses, chooses on dev, answers, measures."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.small_models import small_model

from potstill import losses
from potstill.recipes.joined import average_answers
from potstill.tasks import MultiLabel
from potstill.tasks.multilabel import sigmoid

TASK = MultiLabel(("anger", "joy", "love"))
LOGITS = np.array([[-4.0, 1.0, 0.5], [3.0, -0.1, -5.0], [-1.0, -1.0, -1.0]], np.float32)


@given(st.floats(-800, 800))
def test_the_sigmoid_is_exact_and_does_not_overflow(z):
    found = sigmoid(np.array([z], np.float64))[0]
    assert found == pytest.approx(torch.sigmoid(torch.tensor(z, dtype=torch.float64)).item(), rel=1e-12)


def test_the_loss_is_that_of_transformers():
    """Value and gradient of BertForSequenceClassification's own, `problem_type` multi_label_classification."""
    model = small_model("bert", labels=3).double()
    model.config.problem_type = "multi_label_classification"
    ids = torch.randint(5, 97, (6, 7), generator=torch.Generator().manual_seed(1))
    marks = torch.tensor([[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 1], [0, 0, 1], [0, 1, 0]], dtype=torch.int8)
    theirs = model(input_ids=ids, labels=marks.double()).loss
    total, count = TASK.loss(model(input_ids=ids).logits, marks)
    parameters = list(model.parameters())
    assert total.item() / count == pytest.approx(theirs.item(), rel=1e-6)
    for ours, wanted in zip(
        torch.autograd.grad(total / count, parameters, allow_unused=True),
        torch.autograd.grad(theirs, parameters, allow_unused=True),
        strict=True,
    ):
        assert (ours is None) == (wanted is None)
        if ours is not None:
            torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("published", "own"),
    [
        (losses.logits_kl, losses.binary_kl),
        (losses.soft_cross_entropy, losses.soft_binary_cross_entropy),
        (losses.soft_cross_entropy_reference, losses.soft_binary_cross_entropy),
        (losses.logits_mse, losses.logits_mse),
    ],
)
def test_methods_published_for_one_label_decide_each_label_alone(published, own):
    assert TASK.distillation_loss(published) is own


def test_a_fresh_head_begins_at_how_common_labels_are():
    gold = np.array([[1, 0, 0], [1, 0, 1], [1, 0, 0], [-1, -1, -1]], np.int8)
    centre, unit = TASK.scale(gold)
    np.testing.assert_allclose(centre, np.log([3.5 / 0.5, 0.5 / 3.5, 1.5 / 2.5]))
    assert unit == 1.0


def test_answers_follow_the_thresholds():
    assert [answer["labels"] for answer in TASK.decode(LOGITS)] == [["joy", "love"], ["anger"], []]
    assert TASK.decode(LOGITS)[0]["probabilities"]["joy"] == pytest.approx(1 / (1 + np.exp(-1)))
    tuned = MultiLabel(TASK.labels, thresholds=(0.99, 0.2, 0.7))
    assert [answer["labels"] for answer in tuned.decode(LOGITS)] == [["joy"], ["joy"], ["joy"]]
    assert tuned.tuned == {"thresholds": {"anger": 0.99, "joy": 0.2, "love": 0.7}}
    at = MultiLabel(("a", "b"), thresholds=(0.5, 0.5))
    assert at.predictions(np.zeros((1, 2))).tolist() == [[1, 1]]  # a threshold that is reached


def test_two_models_together_have_the_mean_probability_of_each_label():
    two = np.random.default_rng(0).normal(scale=5, size=(2, 6, 3))
    shares = np.array([0.3, 0.7])
    wanted = 0.3 / (1 + np.exp(-two[0])) + 0.7 / (1 + np.exp(-two[1]))
    np.testing.assert_allclose(sigmoid(TASK.together(two, shares)), wanted, rtol=1e-12)
    # What a student learns of several teachers at a temperature of 1 is the same.
    learned = average_answers([torch.from_numpy(one) for one in two], [3.0, 7.0], 1.0, binary=True)
    np.testing.assert_allclose(learned.numpy(), TASK.together(two, shares), rtol=1e-9, atol=1e-12)
    at_two = average_answers([torch.from_numpy(one) for one in two], [3.0, 7.0], 2.0, binary=True)
    wanted = 0.3 / (1 + np.exp(-two[0] / 2)) + 0.7 / (1 + np.exp(-two[1] / 2))
    np.testing.assert_allclose(sigmoid(at_two.numpy() / 2), wanted, rtol=1e-12)


def test_disagreements_are_by_each_models_own_thresholds():
    gold = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]], np.int8)
    assert TASK.disagreements(gold, LOGITS, LOGITS, 10) == (
        [],
        {"both_right": 3, "teacher_only": 0, "student_only": 0, "both_wrong": 0},
    )
    teacher = MultiLabel(TASK.labels, thresholds=(0.5, 0.8, 0.5))
    student = LOGITS.copy()
    student[1] = [-3.0, 2.0, 0.0]
    rows, counts = TASK.disagreements(gold, LOGITS, student, 10, teacher_task=teacher)
    assert rows == [
        {"row": 1, "gold": ["anger"], "teacher": ["anger"], "student": ["joy", "love"]},
        {"row": 0, "gold": ["joy", "love"], "teacher": ["love"], "student": ["joy", "love"]},
    ]
    assert counts == {"both_right": 1, "teacher_only": 1, "student_only": 1, "both_wrong": 0}
    assert len(TASK.disagreements(gold, LOGITS, student, 1, teacher_task=teacher)[0]) == 1
