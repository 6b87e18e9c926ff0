"""Confidence, withheld answers and single labels: on the page, in the card, in the sentences, and what is refused."""

import json
import xml.etree.ElementTree as ET

import pytest

from potstill.errors import DataError
from potstill.report import conclude, render_card, render_html, validate
from potstill.report.figures import Series, reliability_diagram
from potstill.report.trust import calibration_rows, label_rows, wanted_rows


def text(report) -> str:
    return " ".join(render_html(report).replace("\u00a0", " ").split())


def test_rows_are_what_stands_in_the_report(full):
    parsed = validate(full)
    assert [(row.kind, row.temperature) for row in calibration_rows(parsed)] == [
        ("teacher", 1.0),
        ("teacher", 1.21),
        ("student", 1.0),
        ("student", 1.62),
    ]
    assert [(row.label, row.support) for row in label_rows(parsed)] == [("negative", 771), ("positive", 841)]
    assert label_rows(parsed)[1].student.recall.value == pytest.approx(752 / 841)
    assert [(wanted, row and row.coverage) for wanted, row in wanted_rows(parsed)] == [
        (0.9, 0.7),
        (0.95, None),
        (0.98, None),
        (0.99, None),
    ]


def test_the_page_shows_them(full):
    page = text(full)
    for figure in (
        "The student’s temperature is 1.62, fitted to 1,480 dev examples; potstill predict applies it.",
        "at temperature 1.21",
        "8.3 %",
        "0.330",
        "no threshold is sure to reach it",
        "68.5 %",
        "Scores of each label",
        f"{100 * 752 / 841:.1f} %",
    ):
        assert figure in page
    assert page.count("no threshold is sure") == 3


def test_why_there_is_no_temperature(full):
    found = full["student"]["calibration"]
    found |= {"temperature": 1.0, "reason": "all 1,480 answers are right", "after": found["before"]}
    page = text(full)
    assert "The student has no temperature: on dev all 1,480 answers are right." in page
    assert [row.kind for row in calibration_rows(validate(full))] == ["teacher", "teacher", "student"]
    assert "no temperature was fitted: all 1,480 answers are right" in render_card(full)


def test_where_dev_judges_it_is_said(full):
    full |= {"judged_on": "dev"}
    page = text(full)
    assert "held against dev, on which the temperature was fitted too" in page
    assert "chosen on dev and judged on test" not in page


def test_without_any_nothing_is_shown(scored, three):
    for report in (scored, three):
        page = text(report)
        for part in ("confidence", "abstention", "labels"):
            assert f'id="{part}"' not in page
        assert "## Confidence" not in render_card(report)


def test_many_labels_are_folded_away(many):
    assert "<summary>All 150 labels</summary>" in text(many)


def test_the_card_says_what_transformers_users_have_to_do(full):
    card = render_card(full)
    assert "`(logits / 1.62).softmax(-1)`" in card
    assert "from 8.3 % to 2.1 %" in card
    assert "| 90 % | 0.685 | 69.0 % | 90.2 % |" in card


def test_probabilities_that_are_far_off_are_a_caution(full):
    assert "points off" not in conclude(full)
    full["student"]["calibration"]["after"]["metrics"]["ece"] = {"value": 0.12, "low": 0.09, "high": 0.15, "n": 1612}
    assert "The student's probabilities are 12 points off on average, at its temperature of 1.62:" in conclude(full)


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("student", "calibration", "temperature"), 0, "temperature"),
        (("student", "calibration", "reason"), "why", "reason says that none was fitted"),
        (("student", "calibration", "after", "bins", 9, "n"), 7, r"after: holds 1547 examples, the score 1612"),
        (("teacher", "calibration", "before", "metrics", "nll", "value"), -1.0, "nll is -1.0, outside 0 to inf"),
        (("teacher", "calibration", "after", "metrics"), {}, "brier is absent"),
        (("student", "by_label", "positive", "support"), 5, "support holds 776 examples, the score 1612"),
        (("student", "by_label", "positive", "f1", "value"), 88.0, "f1 is 88.0, outside 0 to 1"),
        (("student", "abstention", "thresholds", 0, "confidence"), 0.9, "not by rising confidence"),
        (("student", "abstention", "wanted", 0, "confidence"), 0.123, "0.123 is the confidence of no threshold"),
    ],
)
def test_contradictions(full, place, value, told):
    report = json.loads(json.dumps(full))
    part = report
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    with pytest.raises(DataError, match=told):
        validate(report)


def test_labels_are_those_of_the_task(full):
    full["teacher"]["by_label"] = dict(reversed(full["teacher"]["by_label"].items()))
    with pytest.raises(DataError, match=r"teacher\.by_label: not the labels of task\.labels, in their order"):
        validate(full)


def circles(svg):
    return [tuple(float(one.get(key)) for key in ("cx", "cy", "r")) for one in ET.fromstring(svg).iter("circle")]


def test_a_point_on_the_diagonal_lies_on_the_line():
    svg = reliability_diagram([Series("a", [0.55, 0.75, 1.0], [0.55, 0.75, 1.0], 0)], [[0.2, 0.2, 0.6]], title="t")
    line = next(one for one in ET.fromstring(svg).iter("line") if one.get("class") == "reference")
    x1, y1, x2, y2 = (float(line.get(key)) for key in ("x1", "y1", "x2", "y2"))
    for x, y, _ in circles(svg):
        assert y == pytest.approx(y1 + (y2 - y1) * (x - x1) / (x2 - x1), abs=0.15)


def test_points_are_areas_and_a_model_too_sure_lies_below():
    svg = reliability_diagram([Series("a", [0.6, 0.95], [0.6, 0.7], 0)], [[0.04, 0.64]], title="<b>")
    (_, _, small), (x, y, large) = circles(svg)
    assert (large - 2) / (small - 2) == pytest.approx(4.0, rel=0.01)
    line = next(one for one in ET.fromstring(svg).iter("line") if one.get("class") == "reference")
    x1, y1, x2, y2 = (float(line.get(key)) for key in ("x1", "y1", "x2", "y2"))
    assert y > y1 + (y2 - y1) * (x - x1) / (x2 - x1)
    assert json.loads(ET.fromstring(svg).get("data-chart"))["x_percent"] is True
