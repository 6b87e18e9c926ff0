"""A report of scores: the page, the card and the sentences speak of scores, and of nothing that a score has not."""

import re

import pytest
from tests.report.test_html import Page

from potstill.errors import DataError
from potstill.report import conclude, render_card, render_html, validate
from potstill.report.tables import cases
from potstill.report.wording import number


def test_the_sentences(scored):
    text = conclude(scored)
    assert "keeps 95.7 % of the teacher's test Pearson correlation" in text
    assert "0.843 against 0.881" in text
    assert not re.search(r"accuracy|label", text)


def test_a_baseline_that_is_better_is_named_rightly(scored):
    better = scored["baselines"]["hard_labels"]
    better["score"] = better["metrics"]["pearson"] = {"value": 0.86, "low": 0.85, "high": 0.87, "n": 1379}
    scored["baselines"]["mean"]["score"] = {"value": 0.9, "low": 0.9, "high": 0.9, "n": 1379}
    text = conclude(scored)
    assert "the same student trained on the scores alone reaches 0.860 against the student's 0.843" in text
    assert (
        "But always giving the mean score reaches 0.900 against the student's 0.843: the student is of no use" in text
    )


def test_the_page(scored):
    text = Page(render_html(scored)).text
    assert "regression of pairs of texts" in text
    for words in ("Pearson correlation", "Spearman correlation", "RMSE", "Mean score", "TF-IDF + ridge regression"):
        assert words in text
    assert "0.00 to 5.00, 2.70 on average" in text
    assert "Same student, scores only" in text
    assert "2.03 2.77 off" in text  # the student's answer to a gold 4.8
    assert "Teacher nearer (1)" in text
    assert "Student nearer (1)" in text
    shown = text[: text.index("Settings")] if "Settings" in text else text
    assert not re.search(r"accuracy|\b0 labels|Confusion|✓ \d|None", shown)


def test_the_card(scored):
    card = render_card(scored)
    assert "print(logits.item())" in card
    assert "answers with a score" in card
    assert "in its training texts from 0.00 to 5.00" in card
    assert '- "regression"' in card
    assert '"pearsonr"' in card
    assert not re.search(r"accuracy|[Ll]abels \(|id2label", card)


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (("task", "labels"), ["a", "b"], "task.labels: 2 labels of a regression"),
        (("disagreements", 0, "gold"), "good", "disagreements.0.gold: 'good' is no score"),
        (("teacher", "metrics", "rmse", "value"), -1.0, "teacher.metrics: rmse is -1.0, outside 0 to inf"),
        (("teacher", "metrics", "spearman", "value"), 1.5, "spearman is 1.5, outside -1 to 1"),
        (("data", "scores"), {"train": {"low": 0}}, "data.scores.train.mean"),
    ],
)
def test_what_contradicts_itself(scored, path, value, fault):
    place = scored
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(DataError, match=fault):
        validate(scored)


def test_who_is_nearer(scored):
    scored["disagreements"].append({"text": "t", "gold": 2.0, "teacher": 1.0, "student": 3.0})
    assert [right for right, _ in cases(validate(scored))] == ["teacher", "student", "neither"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3.8, "3.80"),
        (0.0, "0.00"),
        (41236.4, "41,236"),
        (-0.0123, "-0.01"),
        (0.00123, "0.00123"),
        (250.04, "250.0"),
        (-4.5, "-4.50"),
    ],
)
def test_numbers(value, shown):
    assert number(value) == shown
