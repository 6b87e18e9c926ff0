"""Scores: what a task of them loses, merges, answers, measures."""

import json

import numpy as np
import pytest
import torch
from tests.small_models import small_model
from torch.nn import functional

from potstill import losses
from potstill.config import DataSettings
from potstill.config.fields import choices
from potstill.errors import SettingsError
from potstill.metrics import Metric
from potstill.tasks import TASKS, Classification, MultiLabel, Regression, Task, make_task

TASK = Regression(pair=True)
MADE = {
    "classification": Classification(("no", "yes")),
    "regression": Regression(),
    "multilabel": MultiLabel(("joy", "love")),
}
GOLD = {
    "classification": np.array([0, 1, 1, 0, 1]),
    "regression": np.array([0.0, 5.0, 2.5, 1.0, 4.0]),
    "multilabel": np.array([[1, 0], [0, 0], [1, 1], [0, 1], [1, 0]], dtype=np.int8),
}
LOGITS = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)


@pytest.mark.parametrize("kind", TASKS)
class TestEveryTask:
    """What holds for a task whatever its answers are; a new task is a row in MADE and in GOLD."""

    def test_it_is_made_by_its_name(self, kind):
        made = make_task(kind, MADE[kind].labels, pair=True)
        assert made.kind == kind
        assert made.pair
        assert made.labels == MADE[kind].labels

    def test_what_is_chosen_on_dev_comes_back_from_what_is_written(self, kind):
        task: Task = MADE[kind]
        logits = LOGITS[:, : task.outputs]
        fitted = task.fitted(GOLD[kind], logits)
        assert MADE[kind].restored({"task": kind, **fitted.tuned}) == fitted
        assert fitted.names_outputs == bool(task.labels)

    def test_metrics_hold_the_primary_one_and_agree_with_the_score(self, kind):
        task: Task = MADE[kind]
        predictions = task.predictions(LOGITS[:, : task.outputs])
        found = task.metrics(GOLD[kind], predictions, resamples=50)
        assert task.score(GOLD[kind], predictions) == pytest.approx(found[task.primary_metric].value)
        both = task.resampled(GOLD[kind], [predictions, predictions], resamples=50)
        assert both.metrics(1)[task.primary_metric].value == found[task.primary_metric].value

    def test_answers_are_of_texts_in_their_order(self, kind):
        task = MADE[kind]
        logits = LOGITS[:, : task.outputs]
        answers = task.decode(logits)
        assert [task.decode(logits[row : row + 1])[0] for row in range(5)] == answers
        merged = task.merge(logits, np.array([0, 0, 1, 2, 2]))
        assert len(merged) == 3
        assert np.array_equal(merged[1], logits[2])

    def test_a_constant_is_no_better_than_the_floor(self, kind):
        task = MADE[kind]
        answer = task.constant(GOLD[kind])
        constant = np.full((5, *np.shape(answer)), answer)
        assert task.score(GOLD[kind], constant) <= task.floor(GOLD[kind])[0]

    def test_its_loss_is_a_published_function_and_falls_to_the_right_answers(self, kind):
        task = MADE[kind]
        assert getattr(losses, task.loss.__name__) is task.loss
        assert getattr(losses, task.distillation_loss(losses.logits_kl).__name__)
        gold = torch.from_numpy(GOLD[kind])
        logits = torch.zeros(5, task.outputs, requires_grad=True)
        before, count = task.loss(logits, gold)
        assert count == 5
        (slope,) = torch.autograd.grad(before, logits)
        assert task.loss(logits - 0.05 * slope, gold)[0] < before

    def test_models_together_answer_by_their_shares(self, kind):
        task = MADE[kind]
        two = np.stack([LOGITS[:, : task.outputs], 3 * LOGITS[::-1, : task.outputs]])
        first = task.predictions(two[0])
        assert np.array_equal(task.predictions(task.together(two, np.array([1.0, 0.0]))), first)
        assert np.array_equal(task.predictions(task.together(two[[0, 0]], np.array([0.4, 0.6]))), first)

    def test_it_is_fitted_to_a_model_and_still_answers_for_each_text(self, kind):
        task, logits = MADE[kind], LOGITS[:, : MADE[kind].outputs]
        fitted = task.fitted(GOLD[kind], logits)
        assert type(fitted) is type(task)
        assert fitted.score(GOLD[kind], fitted.predictions(logits)) >= task.score(GOLD[kind], task.predictions(logits))
        assert json.loads(json.dumps(fitted.tuned)) == fitted.tuned
        assert bool(fitted.tuned) == (fitted != task)

    def test_a_temperature_moves_no_answer_and_confidence_is_the_answers_own(self, kind):
        task: Task = MADE[kind]
        logits = LOGITS[:, : task.outputs]
        usual = task.decode(logits)
        for temperature in (0.2, 1.0, 5.0):
            answers = task.decode(logits, temperature)
            for one, other in zip(answers, usual, strict=True):
                assert {k: v for k, v in one.items() if k != "probabilities"} == {
                    k: v for k, v in other.items() if k != "probabilities"
                }
            if task.confidence is None:
                continue
            sure = task.confidence.of(logits, temperature)
            assert sure.dtype == np.float64
            assert ((sure >= 0) & (sure <= 1)).all()
            judged = task.confidence.judge(GOLD[kind], logits, temperature)
            np.testing.assert_allclose(judged.confidence.reshape(5, -1).min(axis=1), sure, rtol=1e-12)
        if task.confidence is None:
            assert task.decode(logits, 5.0) == usual

    def test_scores_of_each_label_are_named_by_the_labels(self, kind):
        task: Task = MADE[kind]
        found = task.by_label(GOLD[kind], task.predictions(LOGITS[:, : task.outputs]), resamples=20)
        assert (tuple(found) == task.labels) if task.labels else found is None

    def test_two_equal_models_do_not_disagree(self, kind):
        task = MADE[kind]
        logits = LOGITS[:, : task.outputs]
        assert task.disagreements(GOLD[kind], logits, logits, 10)[0] == []


def test_settings_name_the_tasks_there_are():
    assert choices(DataSettings.model_fields["task"].annotation) == list(TASKS)


def test_an_unknown_task():
    with pytest.raises(SettingsError, match=r"the task 'ranking'; expected classification \| regression \| multilabel"):
        make_task("ranking")


def test_the_loss_is_that_of_transformers():
    """Value and gradient of BertForSequenceClassification's own, `problem_type` regression."""
    model = small_model("bert", labels=1).double()
    model.config.problem_type = "regression"
    ids = torch.randint(5, 97, (6, 7), generator=torch.Generator().manual_seed(1))
    scores = torch.tensor([0.0, 5.0, 2.4, 3.8, -1.0, 1e3], dtype=torch.float64)
    theirs = model(input_ids=ids, labels=scores).loss
    total, count = losses.score_mse(model(input_ids=ids).logits, scores)
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


def test_examples_without_a_score_count_for_nothing():
    logits = torch.tensor([[1.0], [2.0], [7.0]], requires_grad=True)
    total, count = losses.score_mse(logits, torch.tensor([3.0, float("nan"), 7.5], dtype=torch.float64))
    assert (total.item(), count) == (4.25, 2.0)
    (slope,) = torch.autograd.grad(total, logits)
    assert slope.flatten().tolist() == [-4.0, 0.0, -1.0]
    nothing, none = losses.score_mse(logits, torch.full((3,), float("nan"), dtype=torch.float64))
    assert (nothing.item(), none) == (0.0, 0.0)


def test_distilling_scores_is_squared_error():
    fn = TASK.distillation_loss(losses.soft_cross_entropy)
    student = torch.tensor([[1.0], [2.0]], requires_grad=True)
    total, count = fn(student, torch.tensor([[0.5], [4.0]]))
    wanted = functional.mse_loss(student, torch.tensor([[0.5], [4.0]]))
    assert total.item() / count == pytest.approx(wanted.item())
    assert Classification(("a", "b")).distillation_loss(losses.soft_cross_entropy) is losses.soft_cross_entropy


def test_answers_and_disagreements():
    teacher = np.array([[1.0], [2.0], [3.0], [4.0]], np.float32)
    student = np.array([[1.5], [2.0], [0.5], [4.25]], np.float32)
    assert TASK.decode(teacher[:1]) == [{"score": 1.0}]
    rows, counts = TASK.disagreements(np.array([1.0, 2.0, 2.0, 4.5]), teacher, student, 2)
    assert counts is None
    assert rows == [
        {"row": 2, "gold": 2.0, "teacher": 3.0, "student": 0.5},
        {"row": 0, "gold": 1.0, "teacher": 1.0, "student": 1.5},
    ]
    assert len(TASK.disagreements(np.zeros(4), teacher, student, 10)[0]) == 3


def test_a_teacher_on_another_scale_is_doubted():
    gold = np.array([0.0, 1.0, 2.0, 5.0])
    far = {"rmse": Metric(3.0, 2.0, 4.0, 4)}
    near = {"rmse": Metric(0.5, 0.4, 0.6, 4)}
    assert "not on the data's scale: 3 off" in TASK.doubts(far, gold)
    assert TASK.doubts(near, gold) is None
    assert TASK.scale(np.array([1.0, np.nan, 3.0])) == (2.0, 1.0)
