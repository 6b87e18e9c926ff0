"""A report of sets of labels: what it holds of each label is shown, and what contradicts itself is named."""

import pytest
from tests.report.test_html import Page

from potstill.errors import DataError
from potstill.report import conclude, render_card, render_html, validate
from potstill.report.tables import cases
from potstill.report.trust import label_rows
from potstill.report.wording import answer


def score(value: float, n: int = 1379) -> dict:
    return {"value": value, "low": value - 0.02, "high": value + 0.02, "n": n}


@pytest.fixture
def sets(scored: dict) -> dict:
    """The sample report of scores, its answers sets of labels."""
    scored["task"] |= {"kind": "multilabel", "labels": ["joy", "love"], "primary_metric": "micro_f1"}
    scored["data"] |= {"scores": {}, "labels": {"test": {"joy": 7, "love": 1200}}, "without_label": {"test": 12}}
    baselines = {"hard_labels": 0.7, "tfidf_one_vs_rest": 0.6, "constant_set": 0.3}
    scored["baselines"] = {name: {"score": score(value)} for name, value in baselines.items()}
    for role, value in (("teacher", 0.881), ("student", 0.843)):
        metrics = {"micro_f1": score(value), "macro_f1": score(0.5), "exact_match": score(0.4)}
        f1 = {"joy": (0.25, 7), "love": (0.75 if role == "student" else 0.8, 1200)}
        own = {
            label: {"precision": score(0.5), "recall": score(0.6), "f1": score(value), "support": n, "predicted": 9}
            for label, (value, n) in f1.items()
        }
        scored[role] |= {"score": score(value), "metrics": metrics, "dev": metrics, "by_label": own}
    scored["student"]["thresholds"] = {"joy": 0.125, "love": 0.5}
    for export in scored["exports"]:
        export |= {"score": score(0.84), "test_score": None}
    scored["curves"], scored["gap_closed"] = {}, None
    scored["disagreements"] = [
        {"text": "a", "gold": ["joy"], "teacher": ["joy"], "student": []},
        {"text": "b", "gold": [], "teacher": ["love", "joy"], "student": []},
    ]
    if scored.get("student_errors") is None:
        counts = {"both_right": 1000, "teacher_only": 200, "student_only": 100, "both_wrong": 79}
        scored["student_errors"] = counts
    return scored


def test_the_page_shows_each_label_and_whole_sets(sets):
    text = Page(render_html(sets)).text
    assert "Scores of each label" in text
    assert "each label whose probability reaches its threshold" in text
    row = text.replace("\u00a0", " ").split("love 1,200 ")[1].split("joy 7 ")[0]
    assert next(figure for figure in row.split() if figure[0].isdigit()) == "50.0"
    assert "80.0" in row
    assert row.split()[-1] == "0.50"
    for words in ("micro F1", "exact match", "Best constant set", "TF-IDF + logistic regression a label"):
        assert words in text
    assert "12 without a label" in text
    assert "✓ joy" in text
    assert "✗ no label" in text
    assert "✗ love, joy" in text
    assert answer([]) == "no label"


def test_labels_are_ordered_by_how_common_they_are(sets):
    rows = label_rows(validate(sets))
    assert [(row.label, row.support, row.threshold) for row in rows] == [("love", 1200, 0.5), ("joy", 7, 0.125)]
    assert rows[0].teacher.f1.value == 0.8
    assert [right for right, _ in cases(validate(sets))] == ["teacher", "student"]


def test_sentences_and_card(sets):
    sets["baselines"]["constant_set"]["score"] = score(0.9)
    assert "always giving the same set of labels reaches 90.0 %" in conclude(sets)
    card = render_card(sets)
    assert "multi-label-classification" in card
    assert 'Path("potstill.json").read_text(encoding="utf-8"))["thresholds"]' in card
    assert "the probability from which on each is given" in card


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda report: report["disagreements"][0].update(student="joy"), "no answer of the task multilabel"),
        (lambda report: report["disagreements"][0].update(student=["hate"]), "'hate' is none of task.labels"),
        (lambda report: report["student"]["thresholds"].update(hate=0.5), "student.thresholds: 'hate'"),
        (lambda report: report["teacher"]["by_label"].pop("joy"), "teacher.by_label: not the labels of task.labels"),
        (lambda report: report["student"]["by_label"]["joy"].update(f1=score(60.0)), r"by_label\.joy: f1 is 60.0"),
        (lambda report: report["student"]["by_label"]["joy"].update(support=2000), "support of a label holds 2000"),
        (lambda report: report["student"]["thresholds"].update(joy=1.5), "student.thresholds.joy"),
    ],
)
def test_contradictions(sets, change, words):
    change(sets)
    with pytest.raises(DataError, match=words):
        validate(sets)
